// SPDX-License-Identifier: Apache-2.0
// Every way to make and end a communicator. Rank and size of each are known here from the
// arguments, or were given to the stub beforehand (split).
#include <time.h>

#include <array>
#include <cstring>

#include "program/nccl_calls.h"
#include "program/scenarios.h"

namespace ingero::workload {
namespace {

// One of each kind of size, so that the tracer must know nranks.
void use(Session& session, const Communicator& comm) {
  collective(session, comm, Collective::kAllReduce, 100, 7);
  collective(session, comm, Collective::kAllGather, 100, 7);
}

void set_split_result(const Library& nccl, int rank, int nranks) {
  const auto set = nccl.function<stub_set_split_result_fn>("stub_set_split_result");
  if (set.pointer) set.pointer(rank, nranks);
}

ncclUniqueId fresh_id(Session& session) {
  ncclUniqueId id{};
  session.call(WORKLOAD_FUNCTION(session.context().nccl, ncclGetUniqueId), "", 0, &id);
  return id;
}

// The same first 8 bytes, as under NCCL_COMM_ID: only the whole id tells them apart.
ncclUniqueId sibling_id(const ncclUniqueId& id, char mark) {
  ncclUniqueId other = id;
  other.internal[10] = static_cast<char>(other.internal[10] ^ mark);
  other.internal[127] = mark;
  return other;
}

Communicator init_rank(Session& session, const ncclUniqueId& id, int nranks, int rank) {
  Communicator comm{nullptr, rank, nranks};
  const auto function = WORKLOAD_FUNCTION(session.context().nccl, ncclCommInitRank);
  if (session.call(function, "", 0, &comm.handle, nranks, id, rank) == NCCL_SUCCESS)
    record_comm(session, function.name, comm, &id, nullptr);
  return comm;
}

Communicator init_config(Session& session, const ncclUniqueId& id, int nranks, int rank) {
  Communicator comm{nullptr, rank, nranks};
  ncclConfig_t config = make_config("dp0", 1);
  const auto function = WORKLOAD_FUNCTION(session.context().nccl, ncclCommInitRankConfig);
  if (session.call(function, "", 0, &comm.handle, nranks, id, rank, &config) == NCCL_SUCCESS)
    record_comm(session, function.name, comm, &id, nullptr);
  return comm;
}

Communicator init_scalable(Session& session, const ncclUniqueId& first,
                           const ncclUniqueId& second) {
  Communicator comm{nullptr, 11, 16};
  std::array<ncclUniqueId, 2> ids = {first, second};
  const auto function = WORKLOAD_FUNCTION(session.context().nccl, ncclCommInitRankScalable);
  if (session.call(function, "", 0, &comm.handle, comm.nranks, comm.rank, 2, ids.data(),
                   static_cast<ncclConfig_t*>(nullptr)) == NCCL_SUCCESS)
    record_comm(session, function.name, comm, ids.data(), nullptr);
  return comm;
}

void init_all(Session& session) {
  std::array<ncclComm_t, 3> handles{};
  const std::array<int, 3> devices = {2, 0, 1};
  const auto function = WORKLOAD_FUNCTION(session.context().nccl, ncclCommInitAll);
  if (session.call(function, "", 0, handles.data(), 3, devices.data()) != NCCL_SUCCESS) return;
  for (int rank = 0; rank < 3; rank++) {
    const Communicator comm{handles[static_cast<unsigned>(rank)], rank, 3};
    record_comm(session, function.name, comm, nullptr, nullptr);
    use(session, comm);
    destroy_comm(session, comm);
  }
}

void split(Session& session, const Communicator& parent) {
  const Library& nccl = session.context().nccl;
  const auto function = WORKLOAD_FUNCTION(nccl, ncclCommSplit);
  ncclConfig_t* const no_config = nullptr;
  Communicator child{nullptr, 1, 2};
  set_split_result(nccl, child.rank, child.nranks);
  if (session.call(function, "", 0, parent.handle, 0, 7, &child.handle, no_config) ==
      NCCL_SUCCESS) {
    record_comm(session, function.name, child, nullptr, parent.handle);
    use(session, child);
    destroy_comm(session, child);
  }
  ncclComm_t none = nullptr;  // no colour: stays null, and there is nothing to record
  session.call(function, "", 0, parent.handle, -1, 0, &none, no_config);
}

// Two splits in nested groups: the handles appear at the outermost end only.
void grouped_split(Session& session, const Communicator& parent) {
  const Library& nccl = session.context().nccl;
  const auto function = WORKLOAD_FUNCTION(nccl, ncclCommSplit);
  ncclConfig_t* const no_config = nullptr;
  std::array<Communicator, 2> children = {{{nullptr, 0, 3}, {nullptr, 2, 5}}};
  session.call_always(WORKLOAD_FUNCTION(nccl, ncclGroupStart));
  session.call_always(WORKLOAD_FUNCTION(nccl, ncclGroupStart));
  for (auto& child : children) {
    set_split_result(nccl, child.rank, child.nranks);
    session.call(function, "", 0, parent.handle, child.rank, 0, &child.handle, no_config);
  }
  session.call_always(WORKLOAD_FUNCTION(nccl, ncclGroupEnd));
  session.call_always(WORKLOAD_FUNCTION(nccl, ncclGroupEnd));
  for (const auto& child : children) {
    if (child.handle == nullptr) continue;
    record_comm(session, function.name, child, nullptr, parent.handle);
    use(session, child);
    destroy_comm(session, child);
  }
}

// One thread, two devices: the usual reason for a grouped init.
void grouped_init(Session& session) {
  const Library& nccl = session.context().nccl;
  const ncclUniqueId id = fresh_id(session);
  const auto function = WORKLOAD_FUNCTION(nccl, ncclCommInitRank);
  std::array<Communicator, 2> comms = {{{nullptr, 0, 2}, {nullptr, 1, 2}}};
  session.call_always(WORKLOAD_FUNCTION(nccl, ncclGroupStart));
  for (auto& comm : comms) session.call(function, "", 0, &comm.handle, 2, id, comm.rank);
  session.call_always(WORKLOAD_FUNCTION(nccl, ncclGroupEnd));
  for (const auto& comm : comms) {
    if (comm.handle == nullptr) continue;
    record_comm(session, function.name, comm, &id, nullptr);
    use(session, comm);
    destroy_comm(session, comm);
  }
}

// blocking=0: the call returns ncclInProgress and the work is done by a thread.
void nonblocking_init(Session& session) {
  const Library& nccl = session.context().nccl;
  const ncclUniqueId id = fresh_id(session);
  Communicator comm{nullptr, 3, 4};
  ncclConfig_t config = make_config("later", 0);
  const auto function = WORKLOAD_FUNCTION(nccl, ncclCommInitRankConfig);
  const int result =
      session.call(function, "", 0, &comm.handle, comm.nranks, id, comm.rank, &config);
  const auto poll = WORKLOAD_FUNCTION(nccl, ncclCommGetAsyncError);
  if (result != NCCL_IN_PROGRESS || poll.pointer == nullptr) return;
  int state = NCCL_IN_PROGRESS;
  while (state == NCCL_IN_PROGRESS) {
    const timespec pause{0, 500'000};
    nanosleep(&pause, nullptr);
    poll.pointer(comm.handle, &state);  // not counted: how often is a matter of time
  }
  record_comm(session, function.name, comm, &id, nullptr);
  use(session, comm);
  destroy_comm(session, comm);
}

void shrink_and_grow(Session& session, const Communicator& parent) {
  const Library& nccl = session.context().nccl;
  ncclConfig_t* const no_config = nullptr;
  std::array<int, 2> excluded = {1, 3};
  const auto shrink = WORKLOAD_FUNCTION(nccl, ncclCommShrink);
  Communicator small{nullptr, parent.rank - 2, parent.nranks - 2};
  if (session.call(shrink, "", 0, parent.handle, excluded.data(), 2, &small.handle, no_config, 0) ==
      NCCL_SUCCESS) {
    record_comm(session, shrink.name, small, nullptr, parent.handle);
    use(session, small);
    destroy_comm(session, small);
  }
  const auto grow = WORKLOAD_FUNCTION(nccl, ncclCommGrow);
  Communicator large{nullptr, parent.rank, parent.nranks + 2};
  const ncclUniqueId id = fresh_id(session);
  if (session.call(grow, "", 0, parent.handle, large.nranks, &id, -1, &large.handle, no_config) ==
      NCCL_SUCCESS) {
    record_comm(session, grow.name, large, &id, parent.handle);
    use(session, large);
    destroy_comm(session, large);
  }
}

// A refused init leaves the handle as it was: garbage that a tracer must not take.
void refused_init(Session& session) {
  const ncclUniqueId id = fresh_id(session);
  ncclComm_t handle = reinterpret_cast<ncclComm_t>(0xdeadUL);
  session.call(WORKLOAD_FUNCTION(session.context().nccl, ncclCommInitRank), "", 0, &handle, 2, id,
               2);
}

void inits_round(Session& session) {
  const Library& nccl = session.context().nccl;
  const ncclUniqueId id = fresh_id(session);
  const Communicator plain = init_rank(session, id, 4, 2);
  const Communicator configured = init_config(session, sibling_id(id, 1), 8, 5);
  const Communicator scalable = init_scalable(session, sibling_id(id, 2), sibling_id(id, 3));
  for (const auto* comm : {&plain, &configured, &scalable})
    if (comm->handle) use(session, *comm);
  init_all(session);
  if (plain.handle) {
    split(session, plain);
    grouped_split(session, plain);
  }
  if (configured.handle) shrink_and_grow(session, configured);
  grouped_init(session);
  nonblocking_init(session);
  refused_init(session);
  if (plain.handle) session.call_always(WORKLOAD_FUNCTION(nccl, ncclCommFinalize), plain.handle);
  destroy_comm(session, plain);
  if (configured.handle)
    session.call_always(WORKLOAD_FUNCTION(nccl, ncclCommAbort), configured.handle);
  destroy_comm(session, scalable);
}

}  // namespace

void scenario_inits(Context& context) {
  run_threads(context, context.options.threads, [](Session& session) {
    while (session.next_round(1)) inits_round(session);
  });
}

}  // namespace ingero::workload
