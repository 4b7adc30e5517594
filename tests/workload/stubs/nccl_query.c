/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of the NCCL stub that only tell something. */
#include <string.h>

#include "nccl_stub.h"

/* Tools find the version by this text, as `strings libnccl.so.2` shows it. */
STUB_EXPORT const char stub_version_text[] = STUB_VERSION_TEXT;

/* No more than a store of the constant: a tool may read it out of the instruction. */
NCCL_API(GetVersion)(int *version)
{
	*version = STUB_NCCL_VERSION;
	return NCCL_SUCCESS;
}
NCCL_ALIAS(GetVersion)

STUB_EXPORT const char *pncclGetErrorString(ncclResult_t result)
{
	return result == NCCL_SUCCESS ? "no error" : "error given by the stub";
}
NCCL_ALIAS(GetErrorString)

STUB_EXPORT const char *pncclGetLastError(ncclComm_t comm)
{
	(void)comm;
	return "";
}
NCCL_ALIAS(GetLastError)

NCCL_API(CommGetAsyncError)(ncclComm_t comm, ncclResult_t *result)
{
	if (!comm_is_valid(comm) || !result)
		return NCCL_INVALID_ARGUMENT;
	*result = __atomic_load_n(&comm->async_result, __ATOMIC_ACQUIRE);
	return NCCL_SUCCESS;
}
NCCL_ALIAS(CommGetAsyncError)

static ncclResult_t tell(ncclComm_t comm, size_t offset, int *value)
{
	if (!comm_is_valid(comm) || !value)
		return NCCL_INVALID_ARGUMENT;
	memcpy(value, (const char *)comm + offset, sizeof(*value));
	return NCCL_SUCCESS;
}

NCCL_API(CommCount)(ncclComm_t comm, int *count)
{
	return tell(comm, offsetof(struct ncclComm, nranks), count);
}
NCCL_ALIAS(CommCount)

NCCL_API(CommUserRank)(ncclComm_t comm, int *rank)
{
	return tell(comm, offsetof(struct ncclComm, rank), rank);
}
NCCL_ALIAS(CommUserRank)

NCCL_API(CommCuDevice)(ncclComm_t comm, int *device)
{
	return tell(comm, offsetof(struct ncclComm, cuda_device), device);
}
NCCL_ALIAS(CommCuDevice)
