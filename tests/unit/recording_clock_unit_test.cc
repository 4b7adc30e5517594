// SPDX-License-Identifier: Apache-2.0
// A wall clock that is set while a recording goes on.
#include <gmock/gmock.h>

#include "record/report.h"
#include "record_test_file.h"

namespace ingero::record {
namespace {

using testing::ElementsAre;
using Row = std::vector<std::string>;

constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr std::uint64_t kStart =
    1'700'000'000 * kSecond;  // unix time when the kernel's clock began

/// The wall clock is `kStart` ahead of the kernel's, and by `step` more or less after it was set.
class SettableClock : public ClockSource {
 public:
  std::uint64_t monotonic_ns() const override { return 10 * kSecond; }
  std::uint64_t boottime_ns() const override { return monotonic_ns(); }
  std::uint64_t realtime_ns() const override {
    return static_cast<std::uint64_t>(static_cast<std::int64_t>(kStart + monotonic_ns()) + step);
  }
  std::int64_t step = 0;
};

class RecordingClockTest : public testing::Test {
 protected:
  void call_at(std::uint64_t monotonic_ns) {
    call_event call = nccl_call();
    call.header.time_ns = monotonic_ns;
    recorder_->add(call);
  }
  void set_clock(std::int64_t step) {
    source_.step = step;
    clock_.resample();  // the agent does it every second
    // The row of clock_samples comes with what the agent knows; until it is there, nothing changes.
    const std::string samples = "SELECT COUNT(*) FROM clock_samples";
    const std::string before = value(path_, samples);
    recorder_->update(std::make_shared<model::Snapshot>());
    while (value(path_, samples) == before) ::usleep(1000);
  }

  TestFolder folder_;
  std::string path_ = folder_.file("a.db");
  SettableClock source_;
  Clock clock_{source_};
  std::unique_ptr<Recorder> recorder_ = std::move(*Recorder::create(options_for(path_), clock_));
};

TEST_F(RecordingClockTest, RowsFollowTheWallClockThatIsSetBackAndNothingIsLost) {
  call_at(10 * kSecond);
  source_.step = -3600 * static_cast<std::int64_t>(kSecond);
  call_at(11 * kSecond);  // until the agent looks again, the time before the step goes on
  set_clock(source_.step);
  call_at(12 * kSecond);
  set_clock(0);
  call_at(13 * kSecond);
  const auto status = recorder_->finish("duration over");
  EXPECT_EQ(status.nccl_calls, 4U);
  for (const auto& [reason, count] : status.losses) EXPECT_EQ(count, 0U) << reason;
  EXPECT_THAT(query({path_}, "SELECT timestamp_ns FROM nccl_calls ORDER BY rowid"),
              ElementsAre(Row{"1700000010000000000"}, Row{"1700000011000000000"},
                          Row{"1699996412000000000"}, Row{"1700000013000000000"}));
}

TEST_F(RecordingClockTest, EachStepIsARowAndTheReportTellsTheLargest) {
  set_clock(-3600 * static_cast<std::int64_t>(kSecond));
  set_clock(0);
  recorder_->finish("duration over");
  EXPECT_THAT(query({path_}, "SELECT offset_ns FROM clock_samples ORDER BY rowid"),
              ElementsAre(Row{"1700000000000000000"}, Row{"1699996400000000000"},
                          Row{"1700000000000000000"}));
  EXPECT_EQ(value(path_, "SELECT clock_drift_ns FROM recording"), "0");
  const auto recording = Recording::open({path_});
  ASSERT_TRUE(recording);
  const auto page = make_report(*recording, {});
  ASSERT_TRUE(page);
  const model::PageTable& head = page->sections[1].table;
  ASSERT_EQ(head.columns.back().title, "clock moved");
  EXPECT_EQ(head.rows.at(0).back(), "-1h00m");
}

}  // namespace
}  // namespace ingero::record
