// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <iostream>

#include "policy/decision.h"

namespace ingero::policy {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using namespace std::chrono_literals;

constexpr std::uint16_t kAllReduce = 1;
constexpr std::uint16_t kAllGather = 2;
constexpr std::uint16_t kAllReduceConfig = 13;
constexpr std::uint16_t kGroupEnd = 31;
constexpr std::uint16_t kCommInitRank = 40;
constexpr std::uint16_t kCudaMemcpy = 100;

/// A policy of this name with these fields of the spec.
TracePolicy policy(const char* name, const char* spec) {
  auto parsed = parse_policy({{"metadata", {{"name", name}}}, {"spec", json::parse(spec)}});
  EXPECT_TRUE(parsed) << parsed.error().message();
  return *parsed;
}

class DecisionTest : public testing::Test {
 protected:
  Decision decide(std::vector<TracePolicy> policies) {
    const PolicySet set(std::move(policies), node, defaults);
    return set.decide({"research", namespace_labels, pod_labels, container});
  }

  Labels node{{"pool", "h100"}};
  Labels namespace_labels{{"team", "research"}};
  Labels pod_labels{{"app", "train"}};
  std::string container = "trainer";
  AgentDefaults defaults{.trace_unmatched = false};
};

TEST(TracePolicyTest, EveryFieldIsRead) {
  const auto parsed = parse_policy(json::parse(R"({
    "apiVersion": "ingero.io/v1alpha1", "kind": "GpuTracePolicy",
    "metadata": {"name": "training", "uid": "u-1", "generation": 3, "resourceVersion": "77"},
    "spec": {
      "namespaceSelector": {"matchLabels": {"team": "research"}},
      "podSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["train"]}]},
      "nodeSelector": {"matchLabels": {"pool": "h100"}},
      "containers": {"include": ["*"], "exclude": ["istio-proxy"]},
      "probes": {"nccl": {"enabled": true, "functions": ["ncclAll*"]},
                 "cudaMemcpy": {"enabled": false}},
      "slowCallThreshold": "1m30s",
      "labels": {"podLabels": ["app", "job-name"], "podAnnotations": ["team/cost"]},
      "limits": {"maxSeries": 5000},
      "recording": {"name": "run-2", "duration": "90s", "maxSize": "20Mi", "files": 2},
      "later": {"unknown": true}}})"));
  ASSERT_TRUE(parsed) << parsed.error().message();
  EXPECT_EQ(parsed->name, "training");
  EXPECT_EQ(parsed->uid, "u-1");
  EXPECT_EQ(parsed->generation, 3);
  EXPECT_EQ(parsed->resource_version, "77");
  EXPECT_THAT(parsed->namespace_selector.requirements,
              ElementsAre(SelectorRequirement{"team", SelectorOperator::in, {"research"}}));
  EXPECT_THAT(parsed->pod_selector.requirements,
              ElementsAre(SelectorRequirement{"app", SelectorOperator::in, {"train"}}));
  EXPECT_THAT(parsed->node_selector.requirements,
              ElementsAre(SelectorRequirement{"pool", SelectorOperator::in, {"h100"}}));
  EXPECT_THAT(parsed->included_containers, ElementsAre("*"));
  EXPECT_THAT(parsed->excluded_containers, ElementsAre("istio-proxy"));
  EXPECT_TRUE(parsed->nccl_enabled);
  EXPECT_THAT(parsed->nccl_functions, ElementsAre("ncclAll*"));
  EXPECT_FALSE(parsed->cuda_memcpy_enabled);
  EXPECT_EQ(parsed->slow_call_threshold, 90s);
  EXPECT_THAT(parsed->pod_labels, ElementsAre("app", "job-name"));
  EXPECT_THAT(parsed->pod_annotations, ElementsAre("team/cost"));
  EXPECT_EQ(parsed->max_series, 5000u);
  EXPECT_EQ(parsed->recording, (RecordingSpec{"run-2", 90s, 20 << 20, 2}));
}

TEST(TracePolicyTest, ASizeIsWrittenAsKubernetesOrAsTheSettingsWriteIt) {
  for (const char* text : {"2Gi", "2GiB", "2048Mi", "2048MiB"}) {
    const auto parsed = parse_policy(
        {{"metadata", {{"name", "p"}}}, {"spec", {{"recording", {{"maxSize", text}}}}}});
    ASSERT_TRUE(parsed) << parsed.error().message();
    EXPECT_EQ(parsed->recording->max_bytes, 2ULL << 30) << text;
  }
}

TEST(TracePolicyTest, WhatIsAbsentOrNullHasTheDefaults) {
  TracePolicy expected;
  expected.name = "p";
  for (const char* text :
       {R"({"metadata": {"name": "p"}})", R"({"metadata": {"name": "p"}, "spec": null})",
        R"({"metadata": {"name": "p"}, "spec": {"probes": null, "podSelector": null}})",
        R"({"metadata": {"name": "p"}, "spec": {"probes": {"nccl": {"functions": []}},
            "containers": {"include": []}}})"}) {
    const auto parsed = parse_policy(json::parse(text));
    ASSERT_TRUE(parsed) << text << parsed.error().message();
    EXPECT_EQ(*parsed, expected) << text;
  }
}

TEST(TracePolicyTest, AWrongTypeOrBoundIsAnErrorThatNamesTheField) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"containers": {"include": "*"}})", "(spec.containers.include): it is a JSON string"},
      {R"({"containers": {"exclude": [""]}})", "(spec.containers.exclude): an empty pattern"},
      {R"({"probes": {"nccl": true}})", "(spec.probes.nccl): it is a JSON boolean"},
      {R"({"probes": {"nccl": {"enabled": "yes"}}})", "not true or false"},
      {R"({"probes": {"nccl": {"functions": [1]}}})", "(spec.probes.nccl.functions[0])"},
      {R"({"slowCallThreshold": 50})", "(spec.slowCallThreshold): it is a JSON number"},
      {R"({"slowCallThreshold": "50"})", "write it like 50ms"},
      {R"({"slowCallThreshold": "-1s"})", "write it like 50ms"},
      {R"({"slowCallThreshold": "25h"})", "longer than 24h"},
      {R"({"labels": {"podLabels": [""]}})", "(spec.labels.podLabels): a key is empty"},
      {R"({"limits": {"maxSeries": 0}})", "(spec.limits.maxSeries): 0 is not between"},
      {R"({"limits": {"maxSeries": 18446744073709551615}})", "is not between"},
      {R"({"limits": {"maxSeries": 1.5}})", "not an integer"},
      {R"({"recording": {"duration": "soon"}})", "(spec.recording.duration): it is no duration"},
      {R"({"recording": {"duration": "0s"}})", "write a duration from 1s to 168h"},
      {R"({"recording": {"duration": "169h"}})", "write a duration from 1s to 168h"},
      {R"({"recording": {"maxSize": "20"}})", "(spec.recording.maxSize): it is no size"},
      {R"({"recording": {"maxSize": "20MB"}})", "(spec.recording.maxSize): it is no size"},
      {R"({"recording": {"maxSize": "9Mi"}})", "write a size from 10Mi to 1024Gi"},
      {R"({"recording": {"files": 0}})", "(spec.recording.files): 0 is not between"},
      {R"({"podSelector": {"matchExpressions": [{"key": "a", "operator": "Eq"}]}})",
       "(spec.podSelector.matchExpressions[0].operator)"},
  };
  for (const auto& [spec, message] : cases) {
    const auto parsed = parse_policy({{"metadata", {{"name", "p"}}}, {"spec", json::parse(spec)}});
    ASSERT_FALSE(parsed) << spec;
    EXPECT_THAT(parsed.error().message(), HasSubstr(message));
    EXPECT_THAT(parsed.error().message(), HasSubstr("read policy p"));
  }
  for (const char* text : {"null", "[]", "{}", R"({"metadata": {"name": 1}})",
                           R"({"metadata": {"name": "p", "generation": -1}})"})
    EXPECT_FALSE(parse_policy(json::parse(text))) << text;
  EXPECT_FALSE(parse_policy({{"metadata", {{"name", std::string(254, 'p')}}}}));
  EXPECT_FALSE(
      parse_policy({{"metadata", {{"name", "p"}}},
                    {"spec", {{"containers", {{"include", std::vector<std::string>(65, "a")}}}}}}));
}

TEST_F(DecisionTest, WithoutAMatchTheDefaultActionHolds) {
  EXPECT_EQ(decide({}).reason, "no policy matches and default_action is ignore");
  EXPECT_FALSE(decide({}).traced);
  defaults.trace_unmatched = true;
  defaults.slow_call_ns = 5;
  const Decision traced =
      decide({policy("other", R"({"podSelector": {"matchLabels": {"a": "b"}}})")});
  EXPECT_TRUE(traced.traced);
  EXPECT_TRUE(traced.functions.contains(kAllReduce));
  EXPECT_TRUE(traced.functions.contains(kCudaMemcpy));
  EXPECT_EQ(traced.slow_call_ns, 5u);
  EXPECT_THAT(traced.policies, IsEmpty());
  EXPECT_EQ(traced.reason, "");
}

TEST_F(DecisionTest, EverySelectorMustMatch) {
  const char* matching = R"({"namespaceSelector": {"matchLabels": {"team": "research"}},
    "podSelector": {"matchLabels": {"app": "train"}},
    "nodeSelector": {"matchLabels": {"pool": "h100"}}})";
  EXPECT_TRUE(decide({policy("p", matching)}).traced);
  namespace_labels["team"] = "other";
  EXPECT_FALSE(decide({policy("p", matching)}).traced);
  namespace_labels["team"] = "research";
  pod_labels.clear();
  EXPECT_FALSE(decide({policy("p", matching)}).traced);
  pod_labels["app"] = "train";
  node["pool"] = "a100";
  EXPECT_FALSE(decide({policy("p", matching)}).traced);
  const PolicySet set({policy("p", matching)}, node, defaults);
  ASSERT_EQ(set.entries().size(), 1u);
  EXPECT_FALSE(set.entries()[0].selects_node);
}

TEST_F(DecisionTest, ANamespaceIsKnownByItsNameBeforeItsLabelsAre) {
  const auto by_name = policy(
      "p",
      R"({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "research"}}})");
  namespace_labels.clear();
  EXPECT_TRUE(decide({by_name}).traced);
  namespace_labels["kubernetes.io/metadata.name"] = "other";
  EXPECT_FALSE(decide({by_name}).traced);
}

TEST_F(DecisionTest, APolicyThatLeavesTheContainerOutDoesNotMatch) {
  const auto no_proxy = policy("p", R"({"containers": {"exclude": ["istio-*"]}})");
  const auto only_main = policy("q", R"({"containers": {"include": ["main"]}})");
  EXPECT_THAT(decide({no_proxy, only_main}).policies, ElementsAre("p"));
  container = "istio-proxy";
  EXPECT_EQ(decide({no_proxy}).reason, "container excluded by policy p");
  EXPECT_EQ(decide({only_main, no_proxy}).reason, "container excluded by policies p and q");
  EXPECT_THAT(decide({no_proxy, policy("all", "{}")}).policies, ElementsAre("all"));
  defaults.trace_unmatched = true;
  EXPECT_TRUE(decide({no_proxy}).traced);
}

TEST_F(DecisionTest, SeveralPoliciesGiveAllProbesAndTheTightestLimits) {
  const Decision merged = decide({
      policy("c", R"({"probes": {"nccl": {"functions": ["ncclAllReduce"]},
                                 "cudaMemcpy": {"enabled": false}},
                      "slowCallThreshold": "50ms", "limits": {"maxSeries": 5000},
                      "labels": {"podLabels": ["job", "app"], "podAnnotations": ["x"]}})"),
      policy("a", R"({"probes": {"nccl": {"functions": ["*Gather"]},
                                 "cudaMemcpy": {"enabled": false}},
                      "slowCallThreshold": "20ms", "limits": {"maxSeries": 9000},
                      "labels": {"podLabels": ["app", "team"]}})"),
      policy("b", R"({"probes": {"nccl": {"enabled": false}}, "slowCallThreshold": "0s"})"),
  });
  EXPECT_TRUE(merged.traced);
  EXPECT_THAT(merged.policies, ElementsAre("a", "b", "c"));
  EXPECT_TRUE(merged.functions.contains(kAllReduce));
  EXPECT_TRUE(merged.functions.contains(kAllReduceConfig));
  EXPECT_TRUE(merged.functions.contains(kAllGather));
  EXPECT_FALSE(merged.functions.contains(7)) << "ncclSend";
  EXPECT_TRUE(merged.functions.contains(kCudaMemcpy));
  EXPECT_EQ(merged.slow_call_ns, 20'000'000u);
  EXPECT_EQ(merged.max_series, 5000u);
  EXPECT_THAT(merged.pod_labels, ElementsAre("app", "job", "team"));
  EXPECT_THAT(merged.pod_annotations, ElementsAre("x"));
}

TEST_F(DecisionTest, WhatPoliciesAskToRecordIsOneRecordingOfTheLargest) {
  const auto a = policy("a", R"({"recording": {"duration": "90s", "maxSize": "2Gi", "files": 2}})");
  const auto b =
      policy("b", R"({"recording": {"duration": "80s", "maxSize": "10Mi", "files": 9}})");
  const Decision merged = decide({a, b, policy("c", "{}")});
  ASSERT_TRUE(merged.recording);
  EXPECT_EQ(merged.recording->spec, (RecordingSpec{"", 90s, 2ULL << 30, 9}));
  EXPECT_THAT(merged.recording->policies, ElementsAre("a", "b"));
  EXPECT_FALSE(decide({policy("c", "{}")}).recording);
  EXPECT_EQ(decide({policy("d", R"({"recording": {}})")}).recording->spec, RecordingSpec{});
}

TEST_F(DecisionTest, AnotherNameOrPolicyIsAnotherRequestToRecord) {
  const auto request = [&](const char* name, const char* spec) {
    return decide({policy(name, spec)}).recording->request;
  };
  const auto first = request("a", R"({"recording": {"name": "x"}})");
  EXPECT_EQ(request("a", R"({"recording": {"name": "x", "duration": "1s"}})"), first);
  EXPECT_NE(request("a", R"({"recording": {"name": "y"}})"), first);
  EXPECT_NE(request("b", R"({"recording": {"name": "x"}})"), first);
}

TEST_F(DecisionTest, NothingIsRecordedWhereNothingIsTraced) {
  defaults.nccl = defaults.cuda = false;
  EXPECT_FALSE(decide({policy("a", R"({"recording": {}})")}).recording);
}

TEST_F(DecisionTest, ThresholdOfThePoliciesElseOfTheSettings) {
  defaults.slow_call_ns = 7;
  const auto none = policy("none", "{}");
  const auto off = policy("off", R"({"slowCallThreshold": "0s"})");
  const auto ten = policy("ten", R"({"slowCallThreshold": "10ns"})");
  EXPECT_EQ(decide({none}).slow_call_ns, 7u);
  EXPECT_EQ(decide({none, off}).slow_call_ns, 0u);
  EXPECT_EQ(decide({off, ten}).slow_call_ns, 10u);
  EXPECT_EQ(decide({ten, none}).slow_call_ns, 10u);
}

TEST_F(DecisionTest, WhatGivesRanksIsAlwaysThereWithNccl) {
  const Decision some =
      decide({policy("p", R"({"probes": {"nccl": {"functions": ["ncclAllReduceConfig"]}}})")});
  EXPECT_TRUE(some.functions.contains(kCommInitRank));
  EXPECT_TRUE(some.functions.contains(kGroupEnd));
  EXPECT_TRUE(some.functions.contains(kAllReduceConfig));
  EXPECT_FALSE(some.functions.contains(kAllReduce));
  const Decision none = decide({policy("p", R"({"probes": {"nccl": {"enabled": false}}})")});
  EXPECT_EQ(none.functions, (FunctionSet{0, true}));
}

TEST_F(DecisionTest, ProbesThatAreOffAreTheReason) {
  const char* nothing = R"({"probes": {"nccl": {"enabled": false},
                                       "cudaMemcpy": {"enabled": false}}})";
  const Decision off = decide({policy("p", nothing)});
  EXPECT_FALSE(off.traced);
  EXPECT_EQ(off.reason, "probes are off in policy p");
  EXPECT_THAT(off.policies, ElementsAre("p"));
  EXPECT_EQ(decide({policy("p", nothing), policy("q", nothing), policy("r", nothing)}).reason,
            "probes are off in policies p and 2 more");

  defaults.nccl = false;
  const auto only_nccl = policy("n", R"({"probes": {"cudaMemcpy": {"enabled": false}}})");
  EXPECT_EQ(decide({only_nccl}).reason, "probes are off in the agent's settings");
  EXPECT_EQ(decide({policy("all", "{}")}).functions, (FunctionSet{0, true}));
  defaults.cuda = false;
  defaults.trace_unmatched = true;
  EXPECT_EQ(decide({}).reason, "probes are off in the agent's settings");
}

TEST_F(DecisionTest, ManyPoliciesAndPodsAreDecidedSoon) {
  std::vector<TracePolicy> policies;
  for (int i = 0; i < 200; ++i) {
    policies.push_back(policy(fmt::format("p{}", i).c_str(), R"({
      "namespaceSelector": {"matchLabels": {"team": "research"}},
      "podSelector": {"matchExpressions": [
        {"key": "app", "operator": "In", "values": ["a", "b", "train"]},
        {"key": "gone", "operator": "DoesNotExist"}]},
      "containers": {"exclude": ["istio-*", "*-proxy"]},
      "labels": {"podLabels": ["app", "job-name"]}})"));
  }
  const auto begin = std::chrono::steady_clock::now();
  const PolicySet set(std::move(policies), node, defaults);
  std::size_t matched = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::string name = fmt::format("trainer-{}", i);
    matched += set.decide({"research", namespace_labels, pod_labels, name}).policies.size();
  }
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  std::cout << fmt::format("200 policies, 1000 pods, all match: {:.1f} ms\n", took.count());
  EXPECT_EQ(matched, 200'000u);
}

}  // namespace
}  // namespace ingero::policy
