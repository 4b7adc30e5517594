// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "report/node_report.h"
#include "report/policy_status.h"

namespace ingero::report {
namespace {

using nlohmann::json;

constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr std::uint64_t kNoon = 1'769'860'800 * kSecond;

NodeReport sample() {
  NodeReport report;
  report.agent_version = "0.4.0";
  report.kernel = "6.8.0";
  report.probes = 42;
  report.losses = {{"map_full", 3}, {"none", 0}, {"map_full", 2}};
  report.policies = {{"training", 3, 8, 64, true, "AllTraced", "8 pods are traced"},
                     {"", 1, 1, 1, true, "", ""}};
  report.untraced = {{"research", "train-0", "train", "NoLibraryMapped", "line\nbreak", "training"},
                     {"research", "", "x", "NoLibraryMapped", "", ""}};
  report.ready = {ConditionStatus::yes, "AllTraced", "8 pods are traced", {}};
  return report;
}

TEST(NodeReportTest, TheStatusHasWhatTheReportHas) {
  const json status = build_node_status(sample(), nullptr, kNoon);
  EXPECT_EQ(status["observedTime"], "2026-01-31T12:00:00Z");
  EXPECT_EQ(status["agentVersion"], "0.4.0");
  EXPECT_EQ(status["probes"], 42);
  EXPECT_EQ(status["lostEvents"], 5);
  EXPECT_EQ(status["losses"], json::parse(R"([{"reason": "map_full", "count": 5}])"));
  EXPECT_EQ(status["policies"], json::parse(R"([{"name": "training", "observedGeneration": 3,
    "pods": 8, "processes": 64, "ready": true, "reason": "AllTraced",
    "message": "8 pods are traced"}])"));
  EXPECT_EQ(status["untraced"], json::parse(R"([{"namespace": "research", "pod": "train-0",
    "container": "train", "reason": "NoLibraryMapped", "message": "line\\x0abreak",
    "policy": "training"}])"));
  EXPECT_EQ(status["conditions"], json::parse(R"([{"type": "Ready", "status": "True",
    "lastTransitionTime": "2026-01-31T12:00:00Z", "reason": "AllTraced",
    "message": "8 pods are traced"}])"));
}

TEST(NodeReportTest, TheTransitionTimeChangesOnlyWithTheStatus) {
  NodeReport report = sample();
  const json first = build_node_status(report, nullptr, kNoon);
  report.ready.reason = "Other";
  const json second = build_node_status(report, first, kNoon + 5 * kSecond);
  EXPECT_EQ(second["conditions"][0]["lastTransitionTime"], "2026-01-31T12:00:00Z");
  report.ready.status = ConditionStatus::no;
  const json third = build_node_status(report, second, kNoon + 9 * kSecond);
  EXPECT_EQ(third["conditions"][0]["status"], "False");
  EXPECT_EQ(third["conditions"][0]["lastTransitionTime"], "2026-01-31T12:00:09Z");
  for (const char* odd : {"7", "[]", R"({"conditions": 5})", R"({"conditions": [7, {}]})",
                          R"({"conditions": [{"type": "Ready", "status": "False"}]})"}) {
    const json status = build_node_status(report, json::parse(odd), kNoon);
    EXPECT_EQ(status["conditions"][0]["lastTransitionTime"], "2026-01-31T12:00:00Z") << odd;
  }
}

TEST(NodeReportTest, ListsAndTextsKeepToTheSchema) {
  NodeReport report = sample();
  report.agent_pod = std::string(300, 'p');
  report.config_error = std::string(2000, '\xff');
  report.policies.clear();
  for (int i = 0; i < 600; ++i) {
    report.policies.push_back({.name = "p" + std::to_string(i)});
    report.losses.push_back({"r" + std::to_string(i), 1});
    report.untraced.push_back({"n", "pod", "c", "Reason", "", ""});
  }
  const json status = build_node_status(report, nullptr, kNoon);
  EXPECT_EQ(status["agentPod"].get<std::string>().size(), 253u);
  EXPECT_EQ(status["configError"].get<std::string>().size(), 1024u);
  EXPECT_EQ(status["policies"].size(), 512u);
  EXPECT_EQ(status["losses"].size(), 64u);
  EXPECT_EQ(status["lostEvents"], 605);
  EXPECT_EQ(status["untraced"].size(), 64u);
}

TEST(NodeReportTest, CountsAloneMakeNoOtherReport) {
  NodeReport report = sample();
  const json first = build_node_status(report, nullptr, kNoon);
  report.calls = 99;
  report.losses[0].count = 100;
  const json second = build_node_status(report, first, kNoon + kSecond);
  EXPECT_NE(first, second);
  EXPECT_TRUE(is_same_but_for_counts(first, second));
  report.pods = 9;
  EXPECT_FALSE(is_same_but_for_counts(first, build_node_status(report, first, kNoon)));
  EXPECT_FALSE(is_same_but_for_counts(nullptr, first));
}

RecordedPod recorded(std::string pod, std::string state, std::int64_t started_unix_s = 0) {
  RecordedPod recording;
  recording.k8s_namespace = "research";
  recording.pod = std::move(pod);
  recording.state = std::move(state);
  recording.started_unix_s = started_unix_s;
  return recording;
}

RecordedPod going_on() {
  RecordedPod recording = recorded("train-0", kRecordingState, kNoon / kSecond);
  recording.policies = {"training", "all"};
  recording.file = "/recordings/research/train-0/a-001.db";
  recording.files = 1;
  recording.bytes = 4096;
  recording.calls = 17;
  recording.lost = 2;
  recording.ends_unix_s = kNoon / kSecond + 600;
  return recording;
}

json status_with(const std::vector<RecordedPod>& recordings) {
  NodeReport report = sample();
  report.recordings = recordings;
  return build_node_status(report, nullptr, kNoon);
}

TEST(NodeReportTest, ARecordingIsToldWithItsTimesAndCounts) {
  RecordedPod refused = recorded("train-1", kRefusedState);
  refused.message = "no\nroom";
  const json status = status_with({refused, going_on()});
  EXPECT_EQ(status["recording"], 1);
  EXPECT_EQ(status["recordings"], json::parse(R"([
    {"namespace": "research", "pod": "train-0", "policies": ["training", "all"],
     "state": "Recording", "message": "", "file": "/recordings/research/train-0/a-001.db",
     "files": 1, "bytes": 4096, "calls": 17, "lost": 2,
     "startedAt": "2026-01-31T12:00:00Z", "endsAt": "2026-01-31T12:10:00Z"},
    {"namespace": "research", "pod": "train-1", "policies": [], "state": "Refused",
     "message": "no\\x0aroom", "file": "", "files": 0, "bytes": 0, "calls": 0, "lost": 0}])"));
}

TEST(NodeReportTest, RecordingsThatGoOnAreToldBeforeRefusedOnesAndThoseBeforeOldOnes) {
  std::vector<RecordedPod> recordings;
  for (int i = 0; i < 40; ++i) recordings.push_back(recorded("old", kEndedState, 1000 + i));
  for (int i = 0; i < 3; ++i) recordings.push_back(recorded("no", kRefusedState));
  recordings.push_back(recorded("first", kRecordingState, 10));
  recordings.push_back(recorded("second", kRecordingState, 20));
  recordings.push_back(recorded("", kRecordingState, 30));
  recordings.push_back(recorded("third", kRecordingState, 20));
  recordings[5].policies.assign(20, "p");
  recordings[39].policies.assign(20, std::string(300, 'p'));
  const json rows = status_with(recordings)["recordings"];
  ASSERT_EQ(rows.size(), 32u);
  std::vector<std::string> pods;
  for (int i = 0; i < 7; ++i) pods.push_back(rows[i]["pod"]);
  EXPECT_THAT(pods, testing::ElementsAre("second", "third", "first", "no", "no", "no", "old"));
  EXPECT_EQ(rows[6]["startedAt"], "1970-01-01T00:17:19Z");  // the newest of the old ones
  EXPECT_EQ(rows[31]["startedAt"], "1970-01-01T00:16:54Z");
  EXPECT_EQ(rows[6]["policies"].size(), 16u);
  EXPECT_EQ(rows[6]["policies"].at(0).get<std::string>().size(), 253u);
}

TEST(NodeReportTest, TheGrowthOfARecordingMakesNoOtherReport) {
  const json first = status_with({going_on()});
  RecordedPod later = going_on();
  later.file = "/recordings/research/train-0/a-002.db";
  later.files = 2;
  later.bytes = later.calls = later.lost = 999;
  const json second = status_with({later});
  EXPECT_NE(first, second);
  EXPECT_TRUE(is_same_but_for_counts(first, second));
  RecordedPod longer = later;
  ++longer.ends_unix_s;
  EXPECT_FALSE(is_same_but_for_counts(second, status_with({longer})));
  EXPECT_FALSE(is_same_but_for_counts(second, status_with({})));
}

TEST(NodeReportTest, AChangeOfStateAndTheLastNumbersMakeAnotherReport) {
  RecordedPod ended = going_on();
  ended.state = kEndedState;
  const json first = status_with({ended});
  EXPECT_FALSE(is_same_but_for_counts(status_with({going_on()}), first));
  ++ended.calls;  // written after the end was told
  EXPECT_FALSE(is_same_but_for_counts(first, status_with({ended})));
}

TEST(NodeReportTest, ARefusalIsTheSameWhileOnlyTheRoomThatIsLeftChanges) {
  RecordedPod refused = recorded("train-1", kRefusedState);
  refused.message = "/r has 1.25 MiB to give";
  const json first = status_with({refused});
  refused.message = "/r has 12 MiB to give";
  EXPECT_TRUE(is_same_but_for_counts(first, status_with({refused})));
  refused.message = "16 pods are recorded on this node already";
  EXPECT_FALSE(is_same_but_for_counts(first, status_with({refused})));
  // What is on the API server may be anything.
  for (const char* odd : {R"({"recordings": 5})", R"({"recordings": [7, {"state": 3}, {}]})"})
    EXPECT_FALSE(is_same_but_for_counts(json::parse(odd), first)) << odd;
}

json node(const char* name, const char* policies, const char* untraced = "[]") {
  return {{"metadata", {{"name", name}}},
          {"status", {{"policies", json::parse(policies)}, {"untraced", json::parse(untraced)}}}};
}

json fold(const std::vector<json>& nodes, json before = nullptr) {
  std::vector<std::shared_ptr<const NodeView>> views;
  for (const json& node : nodes) views.push_back(std::make_shared<const NodeView>(read_node(node)));
  return fold_policy_statuses({{"p", 3, std::move(before)}}, views, kNoon).at("p");
}

TEST(PolicyStatusTest, TheNodesAreSummed) {
  const char* ready = R"([{"name": "p", "observedGeneration": 3, "pods": 8, "processes": 64,
                           "ready": true}, {"name": "other", "pods": 100}])";
  const json status = fold({node("b", ready), node("a", ready), node("c", "[]")});
  EXPECT_EQ(status, json::parse(R"({
    "observedGeneration": 3, "nodes": 2, "pods": 16, "processes": 128, "ready": "2/2",
    "untraced": [],
    "conditions": [{"type": "Ready", "status": "True", "reason": "AllTraced",
      "message": "128 processes traced in the 16 pods that it selects on 2 nodes", "observedGeneration": 3,
      "lastTransitionTime": "2026-01-31T12:00:00Z"}]})"));
}

struct ReadyCase {
  std::vector<json> nodes;
  const char* ready;
  const char* status;
  const char* reason;
  const char* message;
};

TEST(PolicyStatusTest, TheConditionTellsWhy) {
  const char* in_force = R"([{"name": "p", "observedGeneration": 3, "pods": 1, "processes": 1,
                              "ready": true}])";
  const char* idle = R"([{"name": "p", "observedGeneration": 3, "pods": 2, "ready": true}])";
  const char* old = R"([{"name": "p", "observedGeneration": 2, "pods": 1, "ready": true}])";
  const char* no_pods = R"([{"name": "p", "observedGeneration": 3, "ready": true}])";
  const char* problem = R"([{"name": "p", "observedGeneration": 3, "pods": 1, "ready": false,
                             "message": "no library"}])";
  const ReadyCase cases[] = {
      {{}, "0/0", "Unknown", "NoNodes", "it selects no node that has an agent"},
      {{node("a", in_force)},
       "1/1",
       "True",
       "AllTraced",
       "1 process traced in the 1 pod that it selects on 1 node"},
      {{node("a", idle)},
       "1/1",
       "True",
       "NoProcesses",
       "it selects 2 pods on 1 node; no process of them maps a GPU library"},
      {{node("a", in_force), node("b", old)},
       "1/2",
       "False",
       "Progressing",
       "it is in force on 1 of 2 nodes"},
      {{node("a", no_pods)}, "1/1", "True", "NoPods", "it selects no running pod on 1 node"},
      {{node("b", problem), node("a", in_force)},
       "2/2",
       "False",
       "NotAllTraced",
       "not all it selects is traced on 1 of 2 nodes; b: no library"},
  };
  for (const ReadyCase& c : cases) {
    const json status = fold(c.nodes);
    EXPECT_EQ(status["ready"], c.ready) << c.reason;
    EXPECT_EQ(status["conditions"][0]["status"], c.status) << c.reason;
    EXPECT_EQ(status["conditions"][0]["reason"], c.reason);
    EXPECT_EQ(status["conditions"][0]["message"], c.message);
  }
}

TEST(PolicyStatusTest, UntracedPodsAreListedWithTheirNodeUpToABound) {
  json many = json::array();
  for (int i = 0; i < 40; ++i) {
    many.push_back({{"namespace", "n"},
                    {"pod", "p" + std::to_string(i)},
                    {"container", "c"},
                    {"reason", "AttachRefused"},
                    {"message", "m"},
                    {"policy", i == 0 ? "q" : "p"}});
  }
  const json status = fold({node("b", "[]", many.dump().c_str()),
                            node("a", "[]", R"([{"pod": "x", "reason": "R", "policy": "p"}])")});
  ASSERT_EQ(status["untraced"].size(), 32u);
  EXPECT_EQ(status["untraced"][0]["node"], "a");
  EXPECT_EQ(status["untraced"][1], json::parse(R"({"node": "b", "namespace": "n", "pod": "p1",
    "container": "c", "reason": "AttachRefused", "message": "m"})"));
}

TEST(PolicyStatusTest, ReportsThatHoldAnythingAreHarmless) {
  const json status = fold(
      {
          json(7),
          json::array(),
          json::object(),
          {{"metadata", 5}},
          {{"metadata", {{"name", "x"}}}},
          {{"metadata", {{"name", "y"}}}, {"status", "odd"}},
          node("a",
               R"([7, null, {"name": 3}, {"name": "p", "pods": -5, "processes": "x", "ready": 1,
                   "observedGeneration": 18446744073709551615}, {"name": "p", "pods": 9}])",
               R"([7, {"policy": "p"}, {"policy": "p", "pod": 3, "reason": "r"}])"),
          node("b", R"([{"name": "p", "pods": 9223372036854775807, "observedGeneration": 9}])"),
          node("c", R"([{"name": "p", "pods": 2147483647, "observedGeneration": 9}])"),
      },
      R"({"conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": 3}]})");
  EXPECT_EQ(status["nodes"], 3);
  EXPECT_EQ(status["pods"], 2147483647);
  EXPECT_EQ(status["processes"], 0);
  EXPECT_EQ(status["ready"], "3/3");
  EXPECT_TRUE(status["untraced"].empty());
}

TEST(PolicyStatusTest, TheSameReportsGiveTheSameStatus) {
  const char* ready = R"([{"name": "p", "observedGeneration": 3, "pods": 8, "ready": true}])";
  const json first = fold({node("a", ready), node("b", ready)});
  EXPECT_EQ(fold({node("b", ready), node("a", ready)}, first), first);
}

}  // namespace
}  // namespace ingero::report
