/* SPDX-License-Identifier: Apache-2.0 */
/* An NCCL of a tenant's own: makes communicators as fast as memory can be written, in which nobody finds rank
 * and size. */
#include "stubs/nccl_abi.h"

const char hostile_version[] = "NCCL version 2.98.9+cuda13.0";

static char communicator[1 << 20];

/* What the next calls give, if an attack has set it. */
__attribute__((visibility("default"))) ncclComm_t hostile_handle;

ncclResult_t ncclGetVersion(int* version) {
  *version = 29809;
  return NCCL_SUCCESS;
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId id, int rank) {
  (void)nranks, (void)id, (void)rank;
  *comm = hostile_handle ? hostile_handle : (ncclComm_t)communicator;
  return NCCL_SUCCESS;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  (void)comm;
  return NCCL_SUCCESS;
}

ncclResult_t ncclAllReduce(NCCL_REDUCING_ARGS) {
  (void)send, (void)recv, (void)count, (void)type, (void)op, (void)comm, (void)stream;
  return NCCL_SUCCESS;
}
