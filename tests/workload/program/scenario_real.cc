// SPDX-License-Identifier: Apache-2.0
// Calls into the real libraries on a host without a GPU: each returns an error, or works without a
// device. Only functions that check their arguments before they touch anything are called.
#include "program/cuda_calls.h"
#include "program/nccl_calls.h"
#include "program/scenarios.h"

namespace ingero::workload {
namespace {

// Initialisation fails for want of a driver; the id is real all the same.
void try_init(Session& session) {
  const Library& nccl = session.context().nccl;
  ncclUniqueId id{};
  session.call(WORKLOAD_FUNCTION(nccl, ncclGetUniqueId), "", 0, &id);
  Communicator comm{nullptr, 3, 8};
  const auto plain = WORKLOAD_FUNCTION(nccl, ncclCommInitRank);
  if (session.call(plain, "", 0, &comm.handle, comm.nranks, id, comm.rank) == NCCL_SUCCESS)
    record_comm(session, plain.name, comm, &id, nullptr);
  ncclConfig_t config = make_config("real", 1);
  config.size = 0;  // refused, should a version look at it before the driver
  comm.handle = nullptr;
  const auto with_config = WORKLOAD_FUNCTION(nccl, ncclCommInitRankConfig);
  session.call(with_config, "", 0, &comm.handle, comm.nranks, id, comm.rank, &config);
}

void null_comm_calls(Session& session) {
  const Communicator none{nullptr, 0, 1};
  for (int i = 0; i < kCollectives; i++) {
    for (int type : {0, 7, 9, 11})
      collective(session, none, static_cast<Collective>(i), 1000, type);
  }
  const Library& nccl = session.context().nccl;
  session.call(WORKLOAD_FUNCTION(nccl, ncclGroupStart), "", 0);
  session.call_always(WORKLOAD_FUNCTION(nccl, ncclGroupEnd));
}

}  // namespace

void scenario_real(Context& context) {
  Session session(context);
  while (session.next_round(1)) {
    if (context.nccl) {
      try_init(session);
      null_comm_calls(session);
    }
    runtime_copies(session);
    stream_waits(session);
  }
}

}  // namespace ingero::workload
