// SPDX-License-Identifier: Apache-2.0
// What of a pod's recording is told: as Events, in the node's report, in /debug/state and /metrics.
#include "app/recording_events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "app/node_summary.h"
#include "app/recording_state.h"

namespace ingero::app {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::int64_t kNoon = 1'769'860'800;
constexpr std::int64_t kAgentStart = kNoon - 100;

PodRecordingStatus recording_of(const std::string& pod, const std::string& state) {
  PodRecordingStatus recording;
  recording.k8s_namespace = "research";
  recording.pod = pod;
  recording.uid = "uid-" + pod;
  recording.policies = {"training"};
  recording.state = state;
  if (state == "Refused") return recording;
  recording.started_unix_s = kNoon;
  recording.ends_unix_s = kNoon + 600;
  recording.files.path = "/recordings/research/" + pod + "/a-001.db";
  return recording;
}

PodRecordingStatus with_message(PodRecordingStatus recording, std::string message) {
  recording.message = std::move(message);
  return recording;
}

class RecordingEventsTest : public ::testing::Test {
 protected:
  /// "TYPE REASON of NAMESPACE/POD (UID): MESSAGE"
  std::vector<std::string> tell(const std::vector<PodRecordingStatus>& recordings) {
    std::vector<std::string> lines;
    for (const k8s::Event& event : events_.changes(recordings)) {
      EXPECT_EQ(event.object.api_version + event.object.kind, "v1Pod");
      lines.push_back((event.type == k8s::EventType::warning ? "Warning " : "Normal ") +
                      event.reason + " of " + event.object.k8s_namespace + "/" + event.object.name +
                      " (" + event.object.uid + "): " + event.message);
    }
    return lines;
  }

  RecordingEvents events_{kAgentStart};
};

TEST_F(RecordingEventsTest, BeginAndEndAreToldOnce) {
  const auto going_on = recording_of("train-0", "Recording");
  EXPECT_THAT(tell({going_on}),
              ElementsAre("Normal Recording of research/train-0 (uid-train-0): calls are recorded "
                          "into /recordings/research/train-0/a-001.db until 2026-01-31T12:10:00Z"));
  auto grown = going_on;
  grown.files.calls = 99;
  grown.files.path = "/recordings/research/train-0/a-002.db";
  EXPECT_THAT(tell({grown}), IsEmpty());
  auto ended = with_message(grown, "duration over");
  ended.state = "Ended";
  EXPECT_THAT(tell({ended}),
              ElementsAre("Normal RecordingEnded of research/train-0 (uid-train-0): duration over; "
                          "/recordings/research/train-0/a-002.db"));
  EXPECT_THAT(tell({ended}), IsEmpty());
}

TEST_F(RecordingEventsTest, AnEndByTroubleIsAWarningAndAFullOneIsNot) {
  const std::pair<const char*, const char*> cases[] = {{"disk_full", "Warning"},
                                                       {"write_error", "Warning"},
                                                       {"file_removed", "Warning"},
                                                       {"budget_reached", "Normal"},
                                                       {"", "Normal"}};
  std::vector<PodRecordingStatus> pods;
  for (const auto& [stopped, type] : cases) {
    pods.push_back(recording_of(std::string("p") + stopped, "Ended"));
    pods.back().files.stopped = stopped;
  }
  const auto told = tell(pods);
  ASSERT_EQ(told.size(), std::size(cases));
  for (std::size_t i = 0; i < told.size(); ++i)
    EXPECT_THAT(told[i], testing::StartsWith(std::string(cases[i].second) + " RecordingEnded"))
        << cases[i].first;
}

TEST_F(RecordingEventsTest, ARefusalIsToldOncePerReason) {
  const auto refused = recording_of("train-1", "Refused");
  EXPECT_THAT(tell({with_message(refused, "/r has 1.25 MiB to give")}),
              ElementsAre("Warning RecordingRefused of research/train-1 (uid-train-1): /r has 1.25 "
                          "MiB to give"));
  EXPECT_THAT(tell({with_message(refused, "/r has 700 MiB to give")}), IsEmpty());
  EXPECT_EQ(tell({with_message(refused, "the setting recordings.budget is 0")}).size(), 1u);
  EXPECT_EQ(tell({recording_of("train-1", "Recording")}).size(), 1u);
  EXPECT_EQ(tell({with_message(refused, "the setting recordings.budget is 0")}).size(), 1u);
}

TEST_F(RecordingEventsTest, WhatEndedBeforeTheAgentStartedIsNoNews) {
  auto earlier = recording_of("train-0", "Ended");
  earlier.ends_unix_s = kAgentStart - 1;
  auto within_a_report = recording_of("train-1", "Ended");
  within_a_report.ends_unix_s = kAgentStart;
  EXPECT_THAT(tell({earlier, within_a_report}),
              ElementsAre(testing::HasSubstr("RecordingEnded of research/train-1")));
  EXPECT_THAT(tell({earlier, within_a_report}), IsEmpty());
}

TEST_F(RecordingEventsTest, AnotherRecordingOfTheSamePodIsNews) {
  auto going_on = recording_of("train-0", "Recording");
  EXPECT_EQ(tell({going_on}).size(), 1u);
  ++going_on.started_unix_s;
  EXPECT_EQ(tell({going_on}).size(), 1u);
  EXPECT_THAT(tell({}), IsEmpty());
  EXPECT_EQ(tell({going_on}).size(), 1u);  // it was forgotten
}

TEST(RecordingStateTest, TheNodesReportHasEachRecording) {
  NodeState state;
  state.snapshot = std::make_shared<model::Snapshot>();
  state.view = std::make_shared<ClusterView>();
  auto recording = with_message(recording_of("train-0", "Ended"), "duration over");
  recording.files = {"/recordings/a-002.db", 2, 4096, 17, 3, "", ""};
  state.recordings = {recording, recording_of("train-1", "Refused")};
  const report::NodeReport report = NodeSummary().summarize(state);
  ASSERT_EQ(report.recordings.size(), 2u);
  const report::RecordedPod& row = report.recordings[0];
  EXPECT_EQ(row.k8s_namespace + "/" + row.pod, "research/train-0");
  EXPECT_THAT(row.policies, ElementsAre("training"));
  EXPECT_EQ(row.state + ": " + row.message, "Ended: duration over");
  EXPECT_EQ(row.file, "/recordings/a-002.db");
  EXPECT_EQ(row.files, 2u);
  EXPECT_EQ(row.bytes, 4096u);
  EXPECT_EQ(row.calls, 17u);
  EXPECT_EQ(row.lost, 3u);
  EXPECT_EQ(row.started_unix_s, kNoon);
  EXPECT_EQ(row.ends_unix_s, kNoon + 600);
  EXPECT_EQ(report.recordings[1].state, "Refused");
}

TEST(RecordingStateTest, DebugStateHasAllOfARecording) {
  auto recording = with_message(recording_of("train-0", "Ended"), "no\nroom");
  recording.files = {"/r/a.db", 2, 4096, 17, 3, "no room left for /r/a.db", "disk_full"};
  EXPECT_EQ(recordings_state({recording}), json::parse(R"([
    {"namespace": "research", "pod": "train-0", "pod_uid": "uid-train-0",
     "policies": ["training"], "state": "Ended", "message": "no\\x0aroom",
     "started_unix_s": 1769860800, "ends_unix_s": 1769861400, "file": "/r/a.db", "files": 2,
     "bytes": 4096, "calls": 17, "lost": 3, "stopped": "disk_full",
     "trouble": "no room left for /r/a.db"}])"));
  EXPECT_EQ(recordings_state({}), json::array());
}

TEST(RecordingStateTest, StatesAreCountedAndTotalsAreThoseOfTheAgent) {
  const auto counts = count_recordings(
      {recording_of("a", "Recording"), recording_of("b", "Ended"), recording_of("c", "Recording"),
       recording_of("d", "Refused"), recording_of("e", "Recording"), recording_of("f", "Ended")},
      {4000, 50});
  EXPECT_EQ(counts.recording, 3u);
  EXPECT_EQ(counts.ended, 2u);
  EXPECT_EQ(counts.refused, 1u);
  EXPECT_EQ(counts.calls, 4000u);
  EXPECT_EQ(counts.lost, 50u);
}

}  // namespace
}  // namespace ingero::app
