// SPDX-License-Identifier: Apache-2.0
// Scenarios that are about the calls themselves.
#include <algorithm>
#include <array>

#include "program/cuda_calls.h"
#include "program/nccl_calls.h"
#include "program/scenarios.h"

namespace ingero::workload {
namespace {

constexpr std::uint64_t kLoopCalls = 100;

// A group as an all-to-all of the frameworks makes it.
void send_receive_group(Session& session, const Communicator& comm) {
  const Library& nccl = session.context().nccl;
  session.call_always(WORKLOAD_FUNCTION(nccl, ncclGroupStart));
  collective(session, comm, Collective::kSend, 128, 7);
  collective(session, comm, Collective::kRecv, 128, 7);
  session.call_always(WORKLOAD_FUNCTION(nccl, ncclGroupEnd));
}

void allreduce_loop(Session& session) {
  const Context& context = session.context();
  const Communicator comm = create_comm(session);
  const auto function = WORKLOAD_FUNCTION(context.nccl, ncclAllReduce);
  TallyRow& row = context.tally->row(function.name, "");
  const std::size_t count = context.options.bytes / 4;
  while (session.next_round(kLoopCalls))
    session.call_row(row, function, count * 4, static_cast<const void*>(nullptr),
                     static_cast<void*>(nullptr), count, 7, 0, comm.handle, session.stream());
  destroy_comm(session, comm);
}

void memcpy_loop(Session& session) {
  const Context& context = session.context();
  const auto function = WORKLOAD_FUNCTION(context.cudart, cudaMemcpyAsync);
  TallyRow& to_device = context.tally->row(function.name, "h2d");
  TallyRow& to_host = context.tally->row(function.name, "d2h");
  const std::size_t bytes = context.options.bytes;
  void* target = nullptr;
  const void* source = nullptr;
  while (session.next_round(kLoopCalls)) {
    const bool even = session.round() % 2 == 0;
    session.call_row(even ? to_device : to_host, function, bytes, target, source, bytes,
                     even ? 1 : 2, session.stream());
  }
}

void mixed_thread(Session& session) {
  const Communicator comm = create_comm(session);
  while (session.next_round(1)) mixed_round(session, comm);
  destroy_comm(session, comm);
}

// The stubs return an error for every third call, another code in each round. The codes 7 and 600
// mean "still running" and are none.
void inject(const Context& context, std::uint64_t round) {
  static constexpr std::array<int, 6> nccl_codes = {5, 1, 2, 3, 6, 7};
  static constexpr std::array<int, 6> cuda_codes = {2, 700, 1, 999, 35, 600};
  if (auto* control = Context::control(context.nccl)) {
    control->result = nccl_codes[round % nccl_codes.size()];
    control->every = 3;
  }
  for (const Library* library : {&context.cudart, &context.cuda}) {
    auto* control = Context::control(*library);
    if (control == nullptr) continue;
    control->result = cuda_codes[round % cuda_codes.size()];
    control->every = 3;
  }
}

void stop_injecting(const Context& context) {
  for (const Library* library : {&context.nccl, &context.cudart, &context.cuda})
    if (auto* control = Context::control(*library)) control->every = 0;
}

// pncclX is the same function; a shim that is loaded before NCCL calls it by this name.
void aliased_calls(Session& session, const Communicator& comm) {
  const Library& nccl = session.context().nccl;
  const void* from = nullptr;
  void* to = nullptr;
  const std::size_t count = 1000;
  auto reduce = nccl.function<decltype(ncclAllReduce)>("pncclAllReduce");
  auto gather = nccl.function<decltype(ncclAllGather)>("pncclAllGather");
  reduce.name = "ncclAllReduce";
  gather.name = "ncclAllGather";
  reduce.aliased = gather.aliased = true;
  session.call(reduce, "", count * 4, from, to, count, 7, 0, comm.handle, session.stream());
  session.call(gather, "", count * 2 * static_cast<unsigned>(comm.nranks), from, to, count, 9,
               comm.handle, session.stream());
}

void init_all(Session& session) {
  std::array<ncclComm_t, 2> handles{};
  const Library& nccl = session.context().nccl;
  const int result = session.call(WORKLOAD_FUNCTION(nccl, ncclCommInitAll), "", 0, handles.data(),
                                  2, static_cast<const int*>(nullptr));
  if (result != NCCL_SUCCESS) return;
  for (int rank = 0; rank < 2; rank++) {
    const Communicator comm{handles[static_cast<unsigned>(rank)], rank, 2};
    record_comm(session, "ncclCommInitAll", comm, nullptr, nullptr);
    destroy_comm(session, comm);
  }
}

}  // namespace

void mixed_round(Session& session, const Communicator& comm) {
  static constexpr std::array<std::size_t, 5> counts = {1, 256, 1000, 4096, 65536};
  const unsigned turn = static_cast<unsigned>(session.round());
  if (comm.handle) {
    for (unsigned i = 0; i < kCollectives; i++)
      collective(session, comm, static_cast<Collective>(i), counts[(i + turn) % counts.size()],
                 static_cast<int>((i + turn) % NCCL_DATATYPES));
    send_receive_group(session, comm);
  }
  runtime_copies(session);
  driver_copies(session);
  stream_waits(session);
}

void scenario_mixed(Context& context) {
  run_threads(context, context.options.threads, mixed_thread);
}

void scenario_datatypes(Context& context) {
  run_threads(context, context.options.threads, [](Session& session) {
    const Communicator comm = create_comm(session);
    while (session.next_round(1)) {
      for (int type = 0; type < NCCL_DATATYPES; type++) {
        for (int i = 0; i < kCollectives; i++)
          collective(session, comm, static_cast<Collective>(i), 1000, type);
        config_collectives(session, comm, 1000, type);
      }
    }
    destroy_comm(session, comm);
  });
}

void scenario_copies(Context& context) {
  run_threads(context, context.options.threads, [](Session& session) {
    while (session.next_round(1)) {
      runtime_copies(session);
      driver_copies(session);
      stream_waits(session);
    }
  });
}

void scenario_allreduce(Context& context) {
  run_threads(context, context.options.threads, allreduce_loop);
}

void scenario_memcpy(Context& context) {
  run_threads(context, context.options.threads, memcpy_loop);
}

// Each thread its own communicator, mixed rounds and a tight loop, all at the same time.
void scenario_threads(Context& context) {
  run_threads(context, std::max(context.options.threads, 4), [](Session& session) {
    const Communicator comm = create_comm(session);
    while (session.next_round(10)) {
      mixed_round(session, comm);
      for (int i = 0; i < 50; i++) {
        collective(session, comm, Collective::kAllReduce, 1024, 9);
        copy_async(session, 4096, 1);
      }
    }
    destroy_comm(session, comm);
  });
}

void scenario_nested(Context& context) {
  run_threads(context, context.options.threads, [](Session& session) {
    const Communicator comm = create_comm(session);
    while (session.next_round(10)) {
      collective(session, comm, Collective::kBcast, 1000, 7);
      collective(session, comm, Collective::kBroadcast, 1000, 7);
      aliased_calls(session, comm);
      init_all(session);
      for (int kind = 1; kind < 5; kind++) copy_async(session, 4096, kind);
      session.call(WORKLOAD_FUNCTION(session.context().cudart, cudaStreamSynchronize), "", 0,
                   session.stream());
    }
    destroy_comm(session, comm);
  });
}

void scenario_errors(Context& context) {
  Session session(context);
  const Communicator comm = create_comm(session);
  while (session.next_round(6)) {
    inject(context, session.round());
    mixed_round(session, comm);
    stop_injecting(context);
  }
  destroy_comm(session, comm);
}

}  // namespace ingero::workload
