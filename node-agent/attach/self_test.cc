// SPDX-License-Identifier: Apache-2.0
// Tries what the kernel does, on a function of the agent's own: versions and loads lie.
#include <bpf/bpf.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <fstream>
#include <optional>

#include "attach/bpf_object.h"
#include "attach/bpf_skeleton.h"

/// The function that is probed. Not inlined, not merged, not optimised away.
extern "C" __attribute__((noinline, used)) int ingero_selftest_target(int value) {
  asm volatile("" : "+r"(value));
  return value + 1;
}

namespace ingero::attach {
namespace {

using model::AttachMethod;

constexpr std::uint64_t kCookie = 0x1234567890abcdefULL;
constexpr int kCalls = 5;
constexpr std::uint64_t kLargestThreadStack = 64 << 10;  // arm64 with pages of 64 KiB

/// Offset of the target in /proc/self/exe, or nothing when its mapping can't be found.
std::optional<std::uint64_t> target_offset() {
  const auto address = reinterpret_cast<std::uint64_t>(&ingero_selftest_target);
  std::ifstream maps("/proc/self/maps");
  std::string line;
  while (std::getline(maps, line)) {
    unsigned long start = 0, end = 0, offset = 0;
    char permissions[8] = {};
    if (std::sscanf(line.c_str(), "%lx-%lx %7s %lx", &start, &end, permissions, &offset) != 4)
      continue;
    if (address >= start && address < end) return address - start + offset;
  }
  return std::nullopt;
}

/// Loads those programs alone, with the method's attach type, and the self-test's maps.
Status load_programs(AttachMethod method, const SkeletonPtr& skeleton,
                     std::initializer_list<bpf_program*> wanted) {
  const auto type = static_cast<enum bpf_attach_type>(method == AttachMethod::kSession ? 57
                                                      : method == AttachMethod::kMulti ? 48
                                                                                       : 0);
  bpf_program* program = nullptr;
  bpf_object__for_each_program(program, skeleton->obj) bpf_program__set_autoload(program, false);
  for (bpf_program* one : wanted) {
    bpf_program__set_autoload(one, true);
    bpf_program__set_expected_attach_type(one, type);
  }
  const auto& maps = skeleton->maps;
  bpf_map* map = nullptr;
  bpf_object__for_each_map(map, skeleton->obj) {
    const bool ours =
        map == maps.selftest_hits || map == maps.selftest_stacks || map == maps.no_programs;
    if (!ours && !bpf_map__is_internal(map)) bpf_map__set_autocreate(map, false);
  }
  LibbpfLog log;
  if (const int code = load_skeleton(skeleton.get()); code != 0) {
    Error error = Error::from_errno(-code, "load self-test", "");
    if (!log.last_line().empty()) error.cause += "; " + log.last_line();
    return fail(std::move(error));
  }
  return {};
}

Result<SkeletonPtr> load_selftest(AttachMethod method) {
  SkeletonPtr skeleton = open_skeleton();
  if (!skeleton) return fail_errno("open BPF object", "");
  const auto& progs = skeleton->progs;
  const Status status =
      method == AttachMethod::kSession
          ? load_programs(method, skeleton, {progs.selftest_session})
          : load_programs(method, skeleton, {progs.selftest_entry, progs.selftest_return});
  if (!status) return fail(status.error());
  return skeleton;
}

Result<UprobeLink> attach_to_target(AttachMethod method, const ProgramSet& programs) {
  const auto offset = target_offset();
  if (!offset)
    return fail(
        {"find the self-test function", "/proc/self/maps", "not mapped", "is /proc mounted?"});
  const ProbeTarget target{*offset, kCookie};
  return UprobeLink::create(method, programs, "/proc/self/exe", {&target, 1});
}

Result<UprobeLink> attach_selftest(AttachMethod method, const SkeletonPtr& skeleton) {
  const auto& progs = skeleton->progs;
  return attach_to_target(
      method, {bpf_program__fd(progs.selftest_entry), bpf_program__fd(progs.selftest_return),
               bpf_program__fd(progs.selftest_session)});
}

std::uint64_t hits(const SkeletonPtr& skeleton, std::uint32_t which) {
  std::uint64_t value = 0;
  bpf_map_lookup_elem(bpf_map__fd(skeleton->maps.selftest_hits), &which, &value);
  return value;
}

MethodTrial try_method(AttachMethod method) {
  MethodTrial trial{method, false, ""};
  const auto skeleton = load_selftest(method);
  if (!skeleton) {
    trial.detail = skeleton.error().message();
    return trial;
  }
  const auto link = attach_selftest(method, *skeleton);
  if (!link) {
    trial.detail = link.error().message();
    return trial;
  }
  for (int i = 0; i < kCalls; ++i) ingero_selftest_target(i);
  const std::uint64_t entries = hits(*skeleton, 0), returns = hits(*skeleton, 1);
  trial.works = entries == kCalls && returns == kCalls && hits(*skeleton, 2) == kCookie;
  if (!trial.works) {
    trial.detail = fmt::format("of {} calls {} entries and {} returns were seen, cookie {}", kCalls,
                               entries, returns, hits(*skeleton, 2) == kCookie ? "right" : "wrong");
  }
  return trial;
}

/// Runs in the child: only read, write, _exit and sigreturn are allowed from here on.
[[noreturn]] void call_under_seccomp() {
  if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0) ::syscall(SYS_exit, 3);
  for (int i = 0; i < kCalls; ++i) ingero_selftest_target(i);
  ::syscall(SYS_exit, 0);
  __builtin_unreachable();
}

}  // namespace

std::vector<MethodTrial> try_attach_methods() {
  std::vector<MethodTrial> trials;
  for (const AttachMethod method :
       {AttachMethod::kSession, AttachMethod::kMulti, AttachMethod::kPerf})
    trials.push_back(try_method(method));
  return trials;
}

StackTrial try_thread_stack(AttachMethod method, bool tail_call) {
  const SkeletonPtr skeleton = open_skeleton();
  if (!skeleton) return {false, Error::from_errno(errno, "open BPF object", "").message()};
  if (!tail_call) take_out_tail_calls(skeleton.get());
  bpf_program* const frame = skeleton->progs.selftest_frame;
  if (auto status = load_programs(method, skeleton, {frame}); !status)
    return {false, status.error().message()};
  const int program = bpf_program__fd(frame);
  const auto link = attach_to_target(method, {program, program, program});
  if (!link) return {false, link.error().message()};
  ingero_selftest_target(1);
  struct {
    std::uint64_t frame, thread_stack;
  } seen{};
  const std::uint32_t zero = 0;
  bpf_map_lookup_elem(bpf_map__fd(skeleton->maps.selftest_stacks), &zero, &seen);
  if (seen.frame == 0) return {false, "the program did not run"};
  if (seen.frame - seen.thread_stack < kLargestThreadStack) return {true, ""};
  return {false, fmt::format("its frame is at {:#x}, the thread's stack at {:#x}", seen.frame,
                             seen.thread_stack)};
}

Result<bool> choose_thread_stack(AttachMethod method) {
  if (try_thread_stack(method, false).on_thread_stack) return false;
  const StackTrial trial = try_thread_stack(method, true);
  if (trial.on_thread_stack) return true;
  return fail(
      {"find the stack of BPF programs", std::string(to_string(method)),
       "not the thread's, so a program that is preempted would be written over: " + trial.detail,
       "use another kernel"});
}

SeccompTrial try_return_probe_under_seccomp(AttachMethod method) {
  SeccompTrial trial;
  const auto skeleton = load_selftest(method);
  if (!skeleton) return {false, false, skeleton.error().message()};
  const auto link = attach_selftest(method, *skeleton);
  if (!link) return {false, false, link.error().message()};
  const pid_t child = ::fork();
  if (child < 0) return {false, false, Error::from_errno(errno, "fork", "").message()};
  if (child == 0) call_under_seccomp();
  int status = 0;
  ::waitpid(child, &status, 0);
  trial.tried = !(WIFEXITED(status) && WEXITSTATUS(status) == 3);
  trial.survives = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  if (!trial.tried) trial.detail = "the kernel has no seccomp strict mode";
  else if (!trial.survives) trial.detail = "a child under seccomp was killed by the return probe";
  return trial;
}

}  // namespace ingero::attach
