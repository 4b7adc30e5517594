/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the NCCL stub. */
#ifndef INGERO_WORKLOAD_NCCL_STUB_H
#define INGERO_WORKLOAD_NCCL_STUB_H

#include <stdbool.h>
#include <stdint.h>

#include "nccl_abi.h"
#include "stub_enter.h"

/* As NVIDIA builds it: pncclX is the function, ncclX a weak alias at the same address. */
#define NCCL_API(name)                                                                             \
	STUB_EXPORT extern __typeof__(nccl##name) pnccl##name;                                     \
	STUB_EXPORT ncclResult_t pnccl##name
#define NCCL_ALIAS(name)                                                                           \
	extern STUB_EXPORT __typeof__(nccl##name) nccl##name                                       \
		__attribute__((weak, alias("pnccl" #name)));

/* Order of ncclComm.seqNumber. */
enum sequence {
	SEQUENCE_NONE = -1,
	SEQUENCE_BROADCAST = 0,
	SEQUENCE_REDUCE = 1,
	SEQUENCE_ALL_GATHER = 2,
	SEQUENCE_REDUCE_SCATTER = 3,
	SEQUENCE_ALL_REDUCE = 4,
};

#define NCCL_STRUCT_MAGIC 0x0280028002800280ULL

/* Only what tracers read; every offset is that of 2.28.9 on x86-64. */
struct ncclComm {
	uint64_t start_magic;
	char gap0[1066176 - 8];
#ifdef STUB_FORKED /* where the release has its own, a vendor's build has these */
	uint64_t other_id;
	uint64_t other_hash;
	int other_rank;
	int other_nranks;
	char fork_gap[96 - 24];
#endif
	uint64_t magic; /* first 8 bytes of the unique id */
	uint64_t comm_hash;
	int rank;
	int nranks;
	int cuda_device;
	int nvml_device;
	char gap1[1066224 - 1066208];
	int64_t bus_id;
	char gap2[1066480 - 1066232];
	uint64_t operations;
	char gap3[1069044 - 1066488];
	int async_result;
	char gap4[1075592 - 1069048];
	ncclConfig_t config;
	int init_state;
	char gap5[1075728 - 1075676];
	uint64_t sequence[5];
	char gap6[1082960 - 1075768];
	uint64_t end_magic;
};

#ifndef STUB_FORKED
_Static_assert(offsetof(struct ncclComm, magic) == 1066176, "magic");
_Static_assert(offsetof(struct ncclComm, comm_hash) == 1066184, "commHash");
_Static_assert(offsetof(struct ncclComm, rank) == 1066192, "rank");
_Static_assert(offsetof(struct ncclComm, cuda_device) == 1066200, "cudaDev");
_Static_assert(offsetof(struct ncclComm, bus_id) == 1066224, "busId");
_Static_assert(offsetof(struct ncclComm, operations) == 1066480, "opCount");
_Static_assert(offsetof(struct ncclComm, async_result) == 1069044, "asyncResult");
_Static_assert(offsetof(struct ncclComm, config) == 1075592, "config");
_Static_assert(offsetof(struct ncclComm, config.comm_name) == 1075640, "commName");
_Static_assert(offsetof(struct ncclComm, init_state) == 1075672, "initState");
_Static_assert(offsetof(struct ncclComm, sequence) == 1075728, "seqNumber");
_Static_assert(offsetof(struct ncclComm, end_magic) == 1082960, "endMagic");
_Static_assert(sizeof(struct ncclComm) == 1082968, "size of struct ncclComm in 2.28.9");
#endif
_Static_assert(sizeof(ncclConfig_t) == 80, "size of ncclConfig_t in 2.28");

/* What a communicator's job fills in later: at once, at ncclGroupEnd, or in a thread. */
struct comm_job {
	struct comm_job *next;
	ncclComm_t comm;
	ncclComm_t *publish; /* NULL where the handle was stored at the call already */
	uint64_t magic;
	uint64_t comm_hash;
	int rank;
	int nranks;
	int device;
};

STUB_HIDDEN bool comm_is_valid(ncclComm_t comm);
STUB_HIDDEN void comm_count_operation(ncclComm_t comm, enum sequence sequence);
STUB_HIDDEN ncclComm_t comm_allocate(const ncclConfig_t *config);
/* Runs or defers the job as group state and `blocking` ask; frees it. */
STUB_HIDDEN ncclResult_t job_submit(struct comm_job job);
STUB_HIDDEN ncclResult_t group_end(void);

#endif
