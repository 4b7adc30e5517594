/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives and point-to-point calls of the NCCL stub: they check the communicator, count, and
 * return. No data is moved. */
#include "nccl_stub.h"

static ncclResult_t collective(ncclComm_t comm, enum sequence sequence)
{
	int result = stub_enter();
	if (!comm_is_valid(comm))
		return NCCL_INVALID_ARGUMENT;
	if (result == 0)
		comm_count_operation(comm, sequence);
	return result;
}

#define COLLECTIVE(name, args, sequence)                                                           \
	NCCL_API(name) args                                                                        \
	{                                                                                          \
		(void)stream;                                                                      \
		return collective(comm, sequence);                                                 \
	}                                                                                          \
	NCCL_ALIAS(name)

COLLECTIVE(AllReduce, (NCCL_REDUCING_ARGS), SEQUENCE_ALL_REDUCE)
COLLECTIVE(ReduceScatter, (NCCL_REDUCING_ARGS), SEQUENCE_REDUCE_SCATTER)
COLLECTIVE(Broadcast, (NCCL_ROOTED_ARGS), SEQUENCE_BROADCAST)
COLLECTIVE(Gather, (NCCL_ROOTED_ARGS), SEQUENCE_NONE)
COLLECTIVE(Scatter, (NCCL_ROOTED_ARGS), SEQUENCE_NONE)
COLLECTIVE(AllGather, (NCCL_GATHERING_ARGS), SEQUENCE_ALL_GATHER)
#ifdef STUB_RCCL
COLLECTIVE(AllToAll, (NCCL_GATHERING_ARGS), SEQUENCE_NONE)
#else
COLLECTIVE(AlltoAll, (NCCL_GATHERING_ARGS), SEQUENCE_NONE)
#endif
COLLECTIVE(Reduce,
	   (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
	    int root, ncclComm_t comm, cudaStream_t stream),
	   SEQUENCE_REDUCE)
COLLECTIVE(Send,
	   (const void *buffer, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
	    cudaStream_t stream),
	   SEQUENCE_NONE)
COLLECTIVE(Recv,
	   (void *buffer, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
	    cudaStream_t stream),
	   SEQUENCE_NONE)

/* As in the real library, Bcast is a call of the public Broadcast through the PLT. */
NCCL_API(Bcast)
(void *buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream)
{
	return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}
NCCL_ALIAS(Bcast)

#ifndef STUB_RCCL
COLLECTIVE(AllReduceConfig, (NCCL_REDUCING_ARGS, const void *config), SEQUENCE_ALL_REDUCE)
COLLECTIVE(ReduceScatterConfig, (NCCL_REDUCING_ARGS, const void *config), SEQUENCE_REDUCE_SCATTER)
COLLECTIVE(BroadcastConfig, (NCCL_ROOTED_ARGS, const void *config), SEQUENCE_BROADCAST)
COLLECTIVE(GatherConfig, (NCCL_ROOTED_ARGS, const void *config), SEQUENCE_NONE)
COLLECTIVE(ScatterConfig, (NCCL_ROOTED_ARGS, const void *config), SEQUENCE_NONE)
COLLECTIVE(AllGatherConfig, (NCCL_GATHERING_ARGS, const void *config), SEQUENCE_ALL_GATHER)
COLLECTIVE(AlltoAllConfig, (NCCL_GATHERING_ARGS, const void *config), SEQUENCE_NONE)
COLLECTIVE(ReduceConfig,
	   (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
	    int root, ncclComm_t comm, cudaStream_t stream, const void *config),
	   SEQUENCE_REDUCE)
#endif

/* Names that contain an API name, as the real library's C++ symbols do: never to be probed.
 * ncclGroupEnd calls the first one, so a probe that matches by substring counts double. */
STUB_EXPORT ncclResult_t ncclGroupEndInternal(void)
{
	return group_end();
}

STUB_EXPORT int mangled_all_reduce(int value) __asm__("_Z16ncclAllReduceFooi");
STUB_EXPORT int mangled_all_reduce(int value)
{
	return value + 1;
}
