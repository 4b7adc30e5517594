/* SPDX-License-Identifier: Apache-2.0 */
/* The binary interface of NCCL as callers see it: written from the documented prototypes, so that
 * neither the stub libraries nor the workload need NVIDIA's headers. No signature of these
 * functions changed from 2.3.5 to 2.31. */
#ifndef INGERO_WORKLOAD_NCCL_ABI_H
#define INGERO_WORKLOAD_NCCL_ABI_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int ncclResult_t;
typedef int ncclDataType_t;
typedef int ncclRedOp_t;
typedef struct ncclComm *ncclComm_t;
typedef void *cudaStream_t;

enum {
	NCCL_SUCCESS = 0,
	NCCL_SYSTEM_ERROR = 2,
	NCCL_INVALID_ARGUMENT = 4,
	NCCL_INVALID_USAGE = 5,
	NCCL_IN_PROGRESS = 7,
	NCCL_UNIQUE_ID_BYTES = 128,
	NCCL_CONFIG_MAGIC = -889274641, /* 0xcafebeef */
	NCCL_DATATYPES = 12,
	NCCL_UNDEFINED = -2147483647 - 1,
};

typedef struct {
	char internal[128];
} ncclUniqueId;

/* ncclConfig_t of 2.28; append-only, `size` says how much is there. */
typedef struct {
	size_t size;
	int magic;
	int version;
	int blocking;
	int cga_cluster_size;
	int min_ctas;
	int max_ctas;
	const char *net_name;
	int split_share;
	int traffic_class;
	const char *comm_name;
	int collnet_enable;
	int cta_policy;
	int shrink_share;
	int nvls_ctas;
	int channels_per_net_peer;
	int nvlink_centric_sched;
} ncclConfig_t;

ncclResult_t ncclGetVersion(int *version);
ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
const char *ncclGetErrorString(ncclResult_t result);
const char *ncclGetLastError(ncclComm_t comm);
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank);
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank,
				    ncclConfig_t *config);
ncclResult_t ncclCommInitRankScalable(ncclComm_t *comm, int nranks, int rank, int ids_count,
				      ncclUniqueId *ids, ncclConfig_t *config);
ncclResult_t ncclCommInitAll(ncclComm_t *comms, int devices_count, const int *devices);
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm,
			   ncclConfig_t *config);
ncclResult_t ncclCommShrink(ncclComm_t comm, int *excluded, int excluded_count, ncclComm_t *newcomm,
			    ncclConfig_t *config, int flags);
ncclResult_t ncclCommGrow(ncclComm_t comm, int nranks, const ncclUniqueId *id, int rank,
			  ncclComm_t *newcomm, ncclConfig_t *config);
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *result);
ncclResult_t ncclCommCount(ncclComm_t comm, int *count);
ncclResult_t ncclCommUserRank(ncclComm_t comm, int *rank);
ncclResult_t ncclCommCuDevice(ncclComm_t comm, int *device);

/* 2.31: the same arguments as the plain collective, and a configuration last. */
#define NCCL_ROOTED_ARGS                                                                           \
	const void *send, void *recv, size_t count, ncclDataType_t type, int root,                 \
		ncclComm_t comm, cudaStream_t stream
#define NCCL_REDUCING_ARGS                                                                         \
	const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,           \
		ncclComm_t comm, cudaStream_t stream
#define NCCL_GATHERING_ARGS                                                                        \
	const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,          \
		cudaStream_t stream

ncclResult_t ncclAllReduce(NCCL_REDUCING_ARGS);
ncclResult_t ncclReduceScatter(NCCL_REDUCING_ARGS);
ncclResult_t ncclBroadcast(NCCL_ROOTED_ARGS);
ncclResult_t ncclGather(NCCL_ROOTED_ARGS);
ncclResult_t ncclScatter(NCCL_ROOTED_ARGS);
ncclResult_t ncclAllGather(NCCL_GATHERING_ARGS);
ncclResult_t ncclAlltoAll(NCCL_GATHERING_ARGS);
ncclResult_t ncclAllToAll(NCCL_GATHERING_ARGS); /* RCCL's spelling */
ncclResult_t ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
			ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclBcast(void *buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
		       cudaStream_t stream);
ncclResult_t ncclSend(const void *buffer, size_t count, ncclDataType_t type, int peer,
		      ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclRecv(void *buffer, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
		      cudaStream_t stream);

ncclResult_t ncclAllReduceConfig(NCCL_REDUCING_ARGS, const void *config);
ncclResult_t ncclReduceScatterConfig(NCCL_REDUCING_ARGS, const void *config);
ncclResult_t ncclBroadcastConfig(NCCL_ROOTED_ARGS, const void *config);
ncclResult_t ncclGatherConfig(NCCL_ROOTED_ARGS, const void *config);
ncclResult_t ncclScatterConfig(NCCL_ROOTED_ARGS, const void *config);
ncclResult_t ncclAllGatherConfig(NCCL_GATHERING_ARGS, const void *config);
ncclResult_t ncclAlltoAllConfig(NCCL_GATHERING_ARGS, const void *config);
ncclResult_t ncclReduceConfig(const void *send, void *recv, size_t count, ncclDataType_t type,
			      ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream,
			      const void *config);

#ifdef __cplusplus
}
#endif
#endif
