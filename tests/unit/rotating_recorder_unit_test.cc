// SPDX-License-Identifier: Apache-2.0
// A recording in several files: every call that was added is in one of them, was in one that made room, or
// is counted as lost.
#include "record/rotating_recorder.h"

#include <gmock/gmock.h>

#include "record_test_file.h"

namespace ingero::record {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

class RotatingRecorderTest : public testing::Test {
 protected:
  RotatingOptions options(std::uint64_t max_bytes, std::uint32_t files) {
    RotatingOptions options;
    options.recorder = options_for("");
    options.recorder.max_waiting = 32 << 10;
    options.max_bytes = max_bytes;
    options.files = files;
    options.path_of = [this](std::uint32_t number) -> Result<std::string> {
      return folder_.file(std::to_string(number) + ".db");
    };
    return options;
  }
  /// Of two files, but there is no room for the second one.
  RotatingOptions options_without_next(std::uint64_t max_bytes) {
    RotatingOptions wanted = options(max_bytes, 2);
    wanted.path_of = [this](std::uint32_t number) -> Result<std::string> {
      next_refused_ = number == 2;
      if (next_refused_) return fail(Error{"make the folder", "x", "no room", "", 0});
      return path(static_cast<int>(number));
    };
    return wanted;
  }
  std::unique_ptr<RotatingRecorder> make(RotatingOptions options) {
    auto recorder = RotatingRecorder::create(std::move(options), clock_);
    EXPECT_TRUE(recorder) << recorder.error().message();
    return std::move(*recorder);
  }
  /// Adds calls until `done` says so; the number that were added.
  template <typename Done>
  std::uint64_t add_until(RotatingRecorder& recorder, Done done) {
    std::uint64_t added = 0;
    while (!done()) {
      for (int i = 0; i < 1000; ++i, ++added)
        if (!recorder.add(nccl_call())) std::this_thread::yield();
      recorder.tick();
    }
    return added;
  }
  std::string path(int number) const { return folder_.file(std::to_string(number) + ".db"); }
  bool exists(int number) const { return std::filesystem::exists(path(number)); }
  std::uint64_t rows(int number) const {
    return std::stoull(value(path(number), "SELECT COUNT(*) FROM nccl_events"));
  }

  TestFolder folder_;
  Clock clock_;
  bool next_refused_ = false;
};

TEST_F(RotatingRecorderTest, EveryCallIsInSomeFileOrCounted) {
  auto recorder = make(options(64 * kMiB, 16));
  const std::uint64_t added = add_until(*recorder, [&] { return exists(3); });
  const auto status = recorder->finish("interrupted");
  EXPECT_EQ(status.files, 3U);
  EXPECT_EQ(status.path, path(3));
  EXPECT_EQ(status.calls + status.lost, added);
  EXPECT_EQ(rows(1) + rows(2) + rows(3), status.calls);
  EXPECT_EQ(value(path(1), "SELECT end_reason FROM recording"), "the next file goes on");
  EXPECT_EQ(value(path(3), "SELECT end_reason FROM recording"), "interrupted");
  EXPECT_FALSE(std::filesystem::exists(path(1) + "-wal")) << "a plain file";
}

TEST_F(RotatingRecorderTest, TheOldestFileMakesRoomAndTheSizeIsKept) {
  auto recorder = make(options(10 * kMiB, 2));
  std::uint64_t largest = 0;
  const std::uint64_t added = add_until(*recorder, [&] {
    largest = std::max(largest, recorder->status().bytes);
    return exists(4);
  });
  const auto status = recorder->finish("interrupted");
  EXPECT_EQ(status.calls + status.lost, added) << "those of removed files too";
  EXPECT_EQ(status.files, 2U);
  EXPECT_FALSE(exists(1));
  EXPECT_FALSE(exists(2));
  EXPECT_TRUE(exists(3));
  EXPECT_LE(largest, 10 * kMiB);
  EXPECT_LT(rows(3) + rows(4), added);
}

TEST_F(RotatingRecorderTest, OneFileEndsWhenItIsFull) {
  auto recorder = make(options(10 * kMiB, 1));
  const std::uint64_t added =
      add_until(*recorder, [&] { return !recorder->status().ended.empty(); });
  const auto status = recorder->finish("interrupted");
  EXPECT_THAT(status.ended, testing::HasSubstr("reached its budget"));
  EXPECT_EQ(status.files, 1U);
  EXPECT_EQ(rows(1), status.calls);
  EXPECT_EQ(status.calls + status.lost, added);
  EXPECT_LE(status.bytes, 10 * kMiB);
}

TEST_F(RotatingRecorderTest, FilesAreNotCutSmallerThanIsSensible) {
  auto recorder = make(options(10 * kMiB, 64));
  add_until(*recorder, [&] { return exists(3); });
  EXPECT_EQ(recorder->finish("interrupted").files, 2U) << "10 MiB are two files of 5 MiB";
}

TEST_F(RotatingRecorderTest, GoesOnWithTheFilesOfAnEarlierAgent) {
  make(options(10 * kMiB, 2))->finish("terminated");
  auto again = options(10 * kMiB, 2);
  again.first_number = 2;
  again.earlier_files = {path(1)};
  auto recorder = make(std::move(again));
  EXPECT_EQ(recorder->status().files, 2U);
  add_until(*recorder, [&] { return exists(3); });
  EXPECT_FALSE(exists(1));
  recorder->finish("interrupted");
}

TEST_F(RotatingRecorderTest, LossesFromBeforeTheRecordingAreNotItsOwn) {
  auto wanted = options(10 * kMiB, 1);
  auto before = std::make_shared<model::Snapshot>();
  before->events_lost = {{"call_stream_full", 70}};
  wanted.snapshot = before;
  auto recorder = make(std::move(wanted));
  auto now = std::make_shared<model::Snapshot>();
  now->events_lost = {{"call_stream_full", 75}};
  recorder->update(now);
  recorder->finish("interrupted");
  EXPECT_EQ(value(path(1), "SELECT count FROM losses WHERE reason = 'call_stream_full'"), "5");
}

TEST_F(RotatingRecorderTest, WithoutANextFileTheNewestTakesWhatItCanAndSaysWhyItEnded) {
  auto recorder = make(options_without_next(10 * kMiB));
  const std::uint64_t added =
      add_until(*recorder, [&] { return !recorder->status().ended.empty(); });
  const auto status = recorder->finish("interrupted");
  EXPECT_EQ(status.calls + status.lost, added);
  EXPECT_EQ(rows(1), status.calls);
  EXPECT_THAT(status.ended, testing::HasSubstr("no next file: make the folder (x): no room"));
  EXPECT_EQ(value(path(1), "SELECT end_reason FROM recording"), status.ended);
  EXPECT_EQ(status.stopped, "write_error");
}

TEST_F(RotatingRecorderTest, TheFileThatIsBeingWrittenNeverMakesRoom) {
  auto recorder = make(options_without_next(8 * kMiB));
  // A burst that nobody has looked at until the file is far beyond its share.
  std::uint64_t added = 0;
  while (recorder->status().calls + recorder->status().lost < 250'000) {
    recorder->add(nccl_call());
    ++added;
  }
  recorder->tick();
  const auto status = recorder->finish("interrupted");
  ASSERT_TRUE(exists(1));
  EXPECT_EQ(rows(1), status.calls);
  EXPECT_EQ(status.calls + status.lost, added);
  EXPECT_LE(status.bytes, 8 * kMiB);
}

TEST_F(RotatingRecorderTest, WithoutANextFileAnEndBeforeTheNewestIsFullIsAnEndLikeAnyOther) {
  auto recorder = make(options_without_next(40 * kMiB));  // what still waits finds room
  add_until(*recorder, [&] { return next_refused_; });
  const auto status = recorder->finish("duration over");
  EXPECT_EQ(status.ended, "");
  EXPECT_EQ(value(path(1), "SELECT end_reason FROM recording"), "duration over");
}

}  // namespace
}  // namespace ingero::record
