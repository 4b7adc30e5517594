// SPDX-License-Identifier: Apache-2.0
// Scenarios about processes: fork, exec, and ways to leave a call or to live restricted.
#include <setjmp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "program/cuda_calls.h"
#include "program/nccl_calls.h"
#include "program/scenarios.h"
#include "program/seccomp_filter.h"

namespace ingero::workload {
namespace {

constexpr std::uint64_t kFewCalls = 3;

// Runs `body` in a child; the tally is shared memory, so its calls are in the parent's result.
pid_t spawn(Context& context, const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    context.tally->add_process();
    body();
    _exit(0);
  }
  if (child < 0) std::perror("ingero_workload: fork");
  return child;
}

void few_calls(Session& session, const Communicator& comm) {
  while (session.next_round(kFewCalls)) {
    if (comm.handle) collective(session, comm, Collective::kAllReduce, 1000, 7);
    copy_async(session, 4096, 1);
  }
}

[[noreturn]] void exec_again(const Context& context) {
  std::vector<std::string> arguments = {"ingero_workload"};
  arguments.insert(arguments.end(), context.options.arguments.begin(),
                   context.options.arguments.end());
  const std::string descriptor = std::to_string(context.tally->descriptor());
  for (const std::string& extra :
       {std::string("--generation"), std::string("1"), std::string("--tally-fd"), descriptor})
    arguments.push_back(extra);
  std::vector<char*> pointers;
  for (auto& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  execv("/proc/self/exe", pointers.data());
  std::perror("ingero_workload: exec /proc/self/exe");
  std::exit(3);
}

// Calls that leave by longjmp, between calls that return. Kept apart: no object with a destructor
// may live in a frame that is jumped over.
int jump_out(stub_set_jump_fn* set_jump, decltype(ncclAllReduce)* reduce, ncclComm_t comm) {
  static jmp_buf back;
  if (setjmp(back) != 0) return 1;
  set_jump(&back);
  reduce(nullptr, nullptr, 1000, 7, 0, comm, nullptr);
  return 0;
}

// Where the filtered process waits: a pipe that a helper closes when the hold is over.
int pipe_for_hold(const Context& context, pid_t& helper) {
  int ends[2];
  if (pipe(ends) != 0) return -1;
  helper = fork();
  if (helper == 0) {
    close(ends[0]);
    hold(context.options);
    _exit(0);
  }
  close(ends[1]);
  return ends[0];
}

}  // namespace

void scenario_fork(Context& context) {
  const int children = context.options.processes ? context.options.processes : 4;
  std::vector<pid_t> pids;
  const auto body = [&context] {
    Session session(context);
    const Communicator comm = create_comm(session);
    while (session.next_round(1)) mixed_round(session, comm);
    destroy_comm(session, comm);
  };
  for (int i = 0; i < children; i++) pids.push_back(spawn(context, body));
  body();
  for (const pid_t pid : pids) waitpid(pid, nullptr, 0);
}

// Children come and go, each with a few calls on the communicator that the parent made.
void scenario_forkstorm(Context& context) {
  Session session(context);
  const Communicator comm = create_comm(session);
  const int children = context.options.processes ? context.options.processes : 1000;
  int running = 0;
  for (int i = 0; i < children && !session.expired(); i++) {
    if (running >= std::max(1, context.options.concurrency) && wait(nullptr) > 0) running--;
    const pid_t child = spawn(context, [&context, &comm] {
      Session own(context);
      few_calls(own, comm);
    });
    if (child > 0) running++;
  }
  while (running > 0 && wait(nullptr) > 0) running--;
  destroy_comm(session, comm);
}

void scenario_exec(Context& context) {
  Session session(context);
  const Communicator comm = create_comm(session);
  while (session.next_round(10)) {
    if (comm.handle) collective(session, comm, Collective::kAllReduce, 1000, 7);
    copy_async(session, 4096, 1);
  }
  // The first image leaves its communicator behind, as a process that execs does.
  if (context.options.generation == 0) exec_again(context);
  destroy_comm(session, comm);
}

void scenario_longjmp(Context& context) {
  Session session(context);
  const Communicator comm = create_comm(session);
  const auto set_jump = context.nccl.function<stub_set_jump_fn>("stub_set_jump");
  const auto reduce = WORKLOAD_FUNCTION(context.nccl, ncclAllReduce);
  if (comm.handle == nullptr || set_jump.pointer == nullptr || reduce.pointer == nullptr) {
    std::fprintf(stderr, "ingero_workload: longjmp needs the NCCL stub\n");
    std::exit(3);
  }
  TallyRow& row = context.tally->row(reduce.name, "");
  while (session.next_round(100)) {
    if (jump_out(set_jump.pointer, reduce.pointer, comm.handle) == 1) row.unreturned++;
    for (int i = 0; i < 3; i++) collective(session, comm, Collective::kAllReduce, 1000, 7);
  }
  destroy_comm(session, comm);
}

// Writes the result itself and never returns: the filter allows no more than that.
void scenario_seccomp(Context& context) {
  Session session(context);
  session.unpaced();
  pid_t helper = -1;
  const int wait_end = pipe_for_hold(context, helper);
  const int result_fd = open_result(context.options.tally);
  const Communicator comm = create_comm(session);
  install_strict_filter();
  while (session.next_round(1000)) {
    if (comm.handle) collective(session, comm, Collective::kAllReduce, 1000, 7);
    copy_async(session, 4096, 1);
  }
  destroy_comm(session, comm);
  write_all(result_fd, result_json(context));
  char byte = 0;
  if (wait_end >= 0 && read(wait_end, &byte, 1) < 0) _exit(1);
  _exit(0);
}

}  // namespace ingero::workload
