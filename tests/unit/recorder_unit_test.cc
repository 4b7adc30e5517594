// SPDX-License-Identifier: Apache-2.0
// How a recording begins and ends, and that each call it does not hold is counted.
#include <gmock/gmock.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "recorder_test.h"

namespace ingero::record {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Row = std::vector<std::string>;

TEST_F(RecorderTest, TellsItsHostItsEndAndItsLosses) {
  auto recorder = make();
  recorder->add(nccl_call());
  auto snapshot = std::make_shared<model::Snapshot>();
  snapshot->events_lost = {{"call_stream_full", 7}, {"calls_map_full", 0}};
  recorder->update(snapshot);
  const auto status = recorder->finish("duration over");
  EXPECT_THAT(query({path_},
                    "SELECT host, kernel, architecture, attach_method, selection, end_reason, "
                    "ended_ns IS NOT NULL, nccl_calls, cuda_calls FROM recording"),
              ElementsAre(Row{"host-a", "6.1", "x86_64", "session", "NULL", "duration over", "1",
                              "1", "0"}));
  EXPECT_EQ(value(path_, "SELECT count FROM losses WHERE reason = 'call_stream_full'"), "7");
  EXPECT_EQ(value(path_, "SELECT count FROM losses WHERE reason = 'calls_map_full'"), "0");
  EXPECT_EQ(value(path_, "SELECT count FROM losses WHERE reason = 'disk_full'"), "0");
  EXPECT_EQ(status.losses.at("call_stream_full"), 7U);
  EXPECT_EQ(value(path_, "SELECT COUNT(*) FROM clock_samples"), "1");
}

TEST_F(RecorderTest, CallsThatFindNoRoomAreCountedAndNobodyWaits) {
  std::mutex mutex;
  std::condition_variable changed;
  bool go = false;
  std::atomic<bool> held = false;
  RecorderOptions options = options_for(path_);
  options.max_waiting = 100;
  options.free_bytes = [&](const std::string&) -> std::optional<std::uint64_t> {
    std::unique_lock lock(mutex);  // the disk hangs
    held = true;
    changed.wait(lock, [&] { return go; });
    return std::uint64_t{1} << 40;
  };
  auto recorder = make(std::move(options));
  recorder->add(nccl_call());
  while (!held) std::this_thread::yield();  // the writer holds the first batch
  int room = 0;
  for (int i = 0; i < 1000; ++i) room += recorder->add(nccl_call()) ? 1 : 0;
  {
    const std::lock_guard lock(mutex);
    go = true;
  }
  changed.notify_all();
  const auto status = recorder->finish("interrupted");
  EXPECT_GT(room, 0);
  EXPECT_LT(room, 102);
  EXPECT_GT(status.losses.at("writer_behind"), 0U);
  EXPECT_EQ(status.nccl_calls + status.losses.at("writer_behind"), 1001U);
  EXPECT_EQ(value(path_, "SELECT COUNT(*) FROM nccl_events"), std::to_string(status.nccl_calls));
  EXPECT_EQ(value(path_, "SELECT count FROM losses WHERE reason = 'writer_behind'"),
            std::to_string(status.losses.at("writer_behind")));
}

TEST_F(RecorderTest, AFullDiskEndsTheRecordingAndIsCounted) {
  std::atomic<std::uint64_t> free = std::uint64_t{1} << 40;
  RecorderOptions options = options_for(path_);
  options.free_bytes = [&](const std::string&) { return std::optional<std::uint64_t>(free); };
  auto recorder = make(std::move(options));
  recorder->add(nccl_call());
  while (recorder->status().nccl_calls == 0) std::this_thread::yield();
  free = 1000;
  for (int i = 0; i < 10; ++i) recorder->add(nccl_call());
  const auto status = recorder->finish("interrupted");
  EXPECT_EQ(status.stopped, "disk_full");
  EXPECT_THAT(status.trouble, HasSubstr("no room left"));
  EXPECT_EQ(status.nccl_calls, 1U);
  EXPECT_EQ(status.losses.at("disk_full"), 10U);
  EXPECT_EQ(value(path_, "SELECT COUNT(*) FROM nccl_events"), "1");
  EXPECT_EQ(value(path_, "SELECT end_reason FROM recording"), "disk_full");
  EXPECT_EQ(value(path_, "SELECT count FROM losses WHERE reason = 'disk_full'"), "10");
}

TEST_F(RecorderTest, TheBudgetEndsTheRecordingAndIsKept) {
  RecorderOptions options = options_for(path_);
  options.max_bytes = 2 << 20;
  auto recorder = make(std::move(options));
  const std::uint64_t wanted = 200'000;
  for (std::uint64_t i = 0; i < wanted; ++i)
    if (!recorder->add(nccl_call())) std::this_thread::yield();
  const auto status = recorder->finish("interrupted");
  EXPECT_EQ(status.stopped, "budget_reached");
  EXPECT_LE(status.bytes, std::uint64_t{2} << 20);
  EXPECT_EQ(
      status.nccl_calls + status.losses.at("budget_reached") + status.losses.at("writer_behind"),
      wanted);
  EXPECT_EQ(value(path_, "SELECT end_reason FROM recording"), "budget_reached");
}

TEST_F(RecorderTest, ARemovedFileEndsTheRecordingAndIsCounted) {
  auto recorder = make();
  recorder->add(nccl_call());
  while (recorder->status().nccl_calls == 0) std::this_thread::yield();
  std::filesystem::remove(path_);
  for (int i = 0; i < 10; ++i) recorder->add(nccl_call());
  const auto status = recorder->finish("interrupted");
  EXPECT_EQ(status.stopped, "file_removed");
  EXPECT_EQ(status.losses.at("file_removed"), 10U);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(RecorderTest, WhatWasCommittedIsReadWhileTheRecordingGoesOn) {
  auto recorder = make();
  recorder->add(nccl_call());
  while (recorder->status().nccl_calls == 0) std::this_thread::yield();
  EXPECT_EQ(value(path_, "SELECT COUNT(*) FROM nccl_events"), "1");
  EXPECT_EQ(value(path_, "SELECT end_reason FROM recording"), "NULL");
}

TEST_F(RecorderTest, AFinishedRecordingIsOneFile) {
  make()->finish("interrupted");
  EXPECT_TRUE(std::filesystem::exists(path_));
  EXPECT_FALSE(std::filesystem::exists(path_ + "-wal"));
  EXPECT_FALSE(std::filesystem::exists(path_ + "-shm"));
}

TEST_F(RecorderTest, NeverWritesOverAFileOrThroughALink) {
  make()->finish("interrupted");
  auto again = Recorder::create(options_for(path_), clock_);
  ASSERT_FALSE(again);
  EXPECT_THAT(again.error().message(), HasSubstr("exists"));
  const std::string link = folder_.file("link.db"), target = folder_.file("target");
  std::filesystem::create_symlink(target, link);
  EXPECT_FALSE(Recorder::create(options_for(link), clock_));
  EXPECT_FALSE(std::filesystem::exists(target));
}

TEST_F(RecorderTest, AFolderThatIsNotThereIsAnError) {
  const auto recorder = Recorder::create(options_for(folder_.file("no/a.db")), clock_);
  ASSERT_FALSE(recorder);
  EXPECT_THAT(recorder.error().message(), HasSubstr("No such file"));
}

}  // namespace
}  // namespace ingero::record
