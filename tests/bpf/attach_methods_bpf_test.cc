// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "attach/bpf_object.h"

namespace ingero::attach {
namespace {

TEST(AttachMethods, EachMethodIsTriedOnAFunctionOfOurOwnAndSaysWhyItFails) {
  const auto trials = try_attach_methods();
  ASSERT_EQ(trials.size(), 3u);
  EXPECT_EQ(trials[0].method, model::AttachMethod::kSession);
  bool any = false;
  for (const MethodTrial& trial : trials) {
    any |= trial.works;
    EXPECT_EQ(trial.works, trial.detail.empty()) << to_string(trial.method) << ": " << trial.detail;
  }
  EXPECT_TRUE(any);
}

TEST(AttachMethods, AChildUnderSeccompIsLookedAtAndNotGuessed) {
  for (const MethodTrial& trial : try_attach_methods()) {
    if (!trial.works) continue;
    const SeccompTrial seccomp = try_return_probe_under_seccomp(trial.method);
    EXPECT_TRUE(seccomp.tried) << seccomp.detail;
    EXPECT_EQ(seccomp.survives, seccomp.detail.empty());
  }
}

TEST(AttachMethods, ProgramsWithALargeFrameRunOnTheirThreadsStackByTheChoiceThatTheAgentMakes) {
  for (const MethodTrial& method : try_attach_methods()) {
    if (!method.works) continue;
    const auto tail_calls = choose_thread_stack(method.method);
    ASSERT_TRUE(tail_calls) << tail_calls.error().message();
    const StackTrial trial = try_thread_stack(method.method, *tail_calls);
    EXPECT_TRUE(trial.on_thread_stack) << to_string(method.method) << ": " << trial.detail;
    // What the tail call is for: without it this kernel would take another stack.
    EXPECT_EQ(try_thread_stack(method.method, false).on_thread_stack, !*tail_calls);
  }
}

TEST(AttachMethods, ProgramsLoadWithTheTailCallAndWithoutIt) {
  for (const bool tail_calls : {true, false}) {
    BpfOptions options;
    options.method = model::AttachMethod::kPerf;
    options.tail_calls = tail_calls;
    const auto bpf = BpfObject::create(options);
    EXPECT_TRUE(bpf) << bpf.error().message();
  }
}

TEST(AttachMethods, AnInstructionThatIsNotThereIsRefusedAsAWhole) {
  BpfOptions options;
  options.method = model::AttachMethod::kPerf;
  auto bpf = BpfObject::create(options);
  ASSERT_TRUE(bpf) << bpf.error().message();
  const ProbeTarget nowhere{1ULL << 40, 1};
  const auto link = UprobeLink::create(model::AttachMethod::kPerf, (*bpf)->programs(API_CUDA_COPY),
                                       "/proc/self/exe", {&nowhere, 1});
  ASSERT_FALSE(link);
  EXPECT_NE(link.error().message().find("attach uprobes (perf)"), std::string::npos);
}

}  // namespace
}  // namespace ingero::attach
