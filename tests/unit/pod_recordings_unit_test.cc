// SPDX-License-Identifier: Apache-2.0
// Which pods are recorded, from when until when, and where their calls go.
#include <gmock/gmock.h>

#include <fstream>

#include "pod_recordings_test.h"

namespace ingero::app {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using namespace std::chrono_literals;

TEST_F(PodRecordingsTest, OnlyPodsThatAPolicyAsksForAreRecordedEachIntoItsOwnFile) {
  run_container("a", 1, wish());
  run_container("b", 2, wish());
  run_container("c", 3, std::nullopt);
  look();
  EXPECT_THAT(streamed_, ElementsAre("uid-a", "uid-b"));
  call(1, 3);
  call(2, 5);
  call(3, 7);
  const auto all = recordings_->status();
  ASSERT_EQ(all.size(), 2U);
  recordings_->stop();
  EXPECT_EQ(rows(all[0].files.path), "3");
  EXPECT_EQ(rows(all[1].files.path), "5");
  EXPECT_THAT(all[0].files.path, HasSubstr("/recordings/research/a/20"));
  EXPECT_EQ(record::value(all[0].files.path, "SELECT end_reason FROM recording"),
            "the agent has ended");
  EXPECT_EQ(record::value(all[0].files.path, "SELECT selection FROM recording"),
            "pod research/a (uid uid-a)");
}

TEST_F(PodRecordingsTest, EndsWhenItsTimeIsOverAndDoesNotBeginAgain) {
  run_container("a", 1, wish());
  look();
  EXPECT_EQ(only().state, "Recording");
  EXPECT_EQ(only().ends_unix_s, only().started_unix_s + 60);
  call(1, 3);
  pass(61s);
  look_until_settled();
  EXPECT_EQ(only().state, "Ended");
  EXPECT_EQ(only().message, "duration over");
  EXPECT_EQ(only().files.calls, 3U);
  EXPECT_THAT(streamed_, IsEmpty());
  EXPECT_EQ(record::value(only().files.path, "SELECT end_reason FROM recording"), "duration over");
  look();
  EXPECT_EQ(only().state, "Ended");
}

TEST_F(PodRecordingsTest, AnotherNameAsksForAnotherRecording) {
  run_container("a", 1, wish(10, "first"));
  look();
  const std::string first = only().files.path;
  call(1, 3);
  run_container("a", 1, wish(10, "second"));
  look_until_settled();
  EXPECT_EQ(only().state, "Recording");
  EXPECT_NE(only().files.path, first);
  call(1, 4);
  const std::string second = only().files.path;
  recordings_->stop();
  EXPECT_EQ(rows(first), "3");
  EXPECT_EQ(rows(second), "4");
  EXPECT_EQ(record::value(first, "SELECT end_reason FROM recording"),
            "another recording was asked for");
}

TEST_F(PodRecordingsTest, EndsWhenNobodyAsksForItAndWhenThePodEnds) {
  run_container("a", 1, wish());
  run_container("b", 2, wish());
  look();
  run_container("a", 1, std::nullopt);
  containers_[0].state = "gone";  // of pod b
  look_until_settled();
  const auto all = recordings_->status();
  for (const auto& status : all) EXPECT_EQ(status.state, "Ended") << status.pod;
  EXPECT_EQ(all[0].message, "no policy asks for it any more");
  EXPECT_EQ(all[1].message, "the pod has ended");
  EXPECT_THAT(streamed_, IsEmpty());
}

TEST_F(PodRecordingsTest, ALongerTimeIsTakenOverWhileItGoesOn) {
  run_container("a", 1, wish());
  look();
  auto longer = wish();
  longer.duration = 120s;
  run_container("a", 1, longer);
  pass(61s);
  look();
  EXPECT_EQ(only().state, "Recording");
  EXPECT_EQ(only().files.files, 1U);
}

TEST_F(PodRecordingsTest, AContainerThatBeginsLaterIsInTheRecordingFromItsFirstCall) {
  run_container("a", 1, wish());
  look();
  run_container("a", 9, wish());
  call(9, 2);
  const std::string path = only().files.path;
  recordings_->stop();
  EXPECT_EQ(rows(path), "2");
}

TEST_F(PodRecordingsTest, WithoutANextFileItEndsAndTheFileAndTheStatusSayWhy) {
  auto spec = wish(8);
  spec.files = 2;
  run_container("a", 1, spec);
  look();
  const std::string path = only().files.path;
  std::string next = path;
  next.replace(next.rfind("-001.db"), std::string::npos, "-002.db");
  std::ofstream{next} << "in the way";
  for (int i = 0; i < 4000 && only().state == "Recording" && only().message.empty(); ++i) {
    call(1, 1000);
    std::this_thread::sleep_for(1ms);
    look();
  }
  look_until_settled();
  EXPECT_EQ(only().state, "Ended");
  EXPECT_THAT(only().message, HasSubstr("no next file: "));
  EXPECT_THAT(only().message, HasSubstr("-002.db"));
  EXPECT_EQ(record::value(path, "SELECT end_reason FROM recording"), only().message);
}

TEST_F(PodRecordingsTest, TotalsKeepWhatAReplacedRecordingHasCounted) {
  run_container("a", 1, wish(10, "first"));
  look();
  call(1, 3);
  run_container("a", 1, wish(10, "second"));
  look_until_settled();
  EXPECT_EQ(recordings_->totals().calls, 3U);
  call(1, 4);
  run_container("a", 1, wish(10, "third"));
  look_until_settled();
  EXPECT_EQ(only().files.calls, 0U);
  EXPECT_EQ(recordings_->totals().calls, 7U);
}

TEST_F(PodRecordingsTest, TotalsKeepWhatForgottenRecordingsHaveCounted) {
  constexpr std::uint64_t kPods = 70;  // more than are remembered when they have ended
  std::size_t most = 0;
  for (std::uint64_t pod = 1; pod <= kPods; ++pod) {
    containers_.clear();
    run_container("pod-" + std::to_string(pod), pod, wish(1));
    look();
    call(pod, 2);
    containers_.clear();
    look_until_settled();
    most = std::max(most, recordings_->status().size());
    EXPECT_EQ(recordings_->totals().calls, 2 * pod);
  }
  EXPECT_LT(recordings_->status().size(), most);
  look();
  EXPECT_EQ(recordings_->totals().calls, 2 * kPods);
  EXPECT_EQ(recordings_->totals().lost, 0U);
}

TEST_F(PodRecordingsTest, RetransmitsAndWaitsGoIntoTheFileOfTheirPodOnly) {
  run_container("a", 1, wish());
  run_container("b", 2, wish());
  look();
  record::TcpEvent tcp;
  recordings_->add(1, tcp);
  recordings_->add(1, tcp);
  recordings_->add(3, tcp);
  record::SchedEvent wait;
  wait.cgroup_id = 2;
  recordings_->add(wait);
  wait.cgroup_id = 3;
  recordings_->add(wait);
  const auto all = recordings_->status();
  recordings_->stop();
  const char* sql =
      "SELECT (SELECT COUNT(*) FROM tcp_events) || ' ' || (SELECT COUNT(*) FROM sched_events)";
  EXPECT_EQ(record::value(all[0].files.path, sql), "2 0");
  EXPECT_EQ(record::value(all[1].files.path, sql), "0 1");
}

TEST_F(PodRecordingsTest, APodOfTheSameNameIsAnotherPod) {
  run_container("a", 1, wish());
  look();
  pass(61s);
  look_until_settled();
  auto again = std::make_shared<k8s::PodInfo>(*containers_[0].pod);
  again->uid = "uid-again";
  containers_[0].pod = again;
  look();
  EXPECT_THAT(streamed_, ElementsAre("uid-again"));
}

TEST_F(PodRecordingsTest, OnlyItsOwnProcessesAndLibrariesAreInAFile) {
  const model::FileKey own{1, 10, 0}, other{1, 20, 0};
  snapshot_.processes = {{{812, 77}, static_cast<model::CgroupId>(1), "train", {own}, true},
                         {{813, 78}, static_cast<model::CgroupId>(2), "secret", {other}, true}};
  snapshot_.libraries.resize(2);
  snapshot_.libraries[0].file = own;
  snapshot_.libraries[0].path = "/own/libnccl.so.2";
  snapshot_.libraries[1].file = other;
  snapshot_.libraries[1].path = "/other/libnccl.so.2";
  run_container("a", 1, wish());
  look();
  const std::string path = only().files.path;
  recordings_->stop();
  EXPECT_THAT(record::query({path}, "SELECT command FROM processes"),
              ElementsAre(ElementsAre("train")));
  EXPECT_THAT(record::query({path}, "SELECT path FROM libraries"),
              ElementsAre(ElementsAre("/own/libnccl.so.2")));
}

}  // namespace
}  // namespace ingero::app
