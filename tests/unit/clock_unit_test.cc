// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <thread>
#include <vector>

#include "base/clock.h"

namespace ingero {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr std::uint64_t kNow = 1'767'225'600 * kSecond;  // 2026-01-01

/// Clocks that advance by the next of `steps` (then by 100 ns) with each read, and a wall clock
/// that is `offset` ahead. Boot time is an hour ahead of monotonic time, as after a suspend.
class ScriptedClock : public ClockSource {
 public:
  std::uint64_t monotonic_ns() const override { return tick(); }
  std::uint64_t boottime_ns() const override { return tick() + 3600 * kSecond; }
  std::uint64_t realtime_ns() const override { return tick() + offset; }

  std::uint64_t offset = kNow;
  mutable std::vector<std::uint64_t> steps;

 private:
  std::uint64_t tick() const {
    std::uint64_t step = 100;
    if (!steps.empty()) {
      step = steps.back();
      steps.pop_back();
    }
    return now_ += step;
  }
  mutable std::uint64_t now_ = 0;
};

std::uint64_t distance(std::uint64_t a, std::uint64_t b) { return a > b ? a - b : b - a; }

// Trap "two clocks": recorded timestamps are unix nanoseconds within 1 ms of the wall clock.
TEST(Clock, ConvertsMonotonicTimeToUnixTimeWithinAMillisecond) {
  const Clock clock;
  const ClockSource& source = system_clock_source();
  EXPECT_LT(distance(clock.unix_from_monotonic(source.monotonic_ns()), source.realtime_ns()),
            1'000'000U);
}

TEST(Clock, ConvertsBootTimeToUnixTimeWithinAMillisecond) {
  const Clock clock;
  const ClockSource& source = system_clock_source();
  EXPECT_LT(distance(clock.unix_from_boottime(source.boottime_ns()), source.realtime_ns()),
            1'000'000U);
}

TEST(Clock, KnowsMonotonicAndBootTimeApart) {
  const ScriptedClock source;
  const Clock clock(source);
  EXPECT_LT(distance(clock.unix_from_monotonic(5 * kSecond), kNow + 5 * kSecond), 1000U);
  EXPECT_LT(distance(clock.unix_from_boottime(3605 * kSecond), kNow + 5 * kSecond), 1000U);
}

TEST(Clock, TakesTheTightestOfSeveralSamples) {
  ScriptedClock source;
  // Read in reverse: the first two samples are torn by preemptions, one before, one behind the wall
  // clock's read.
  source.steps = {50'000'000, 100, 100, 100, 80'000'000, 100};
  const Clock clock(source);
  EXPECT_LT(distance(clock.unix_from_monotonic(0), kNow), 1000U);
  EXPECT_LE(clock.uncertainty_ns(), 100U);
}

TEST(Clock, FollowsAStepOfTheWallClockAfterResample) {
  ScriptedClock source;
  Clock clock(source);
  source.offset += 7 * kSecond;
  EXPECT_LT(distance(clock.unix_from_monotonic(0), kNow), 1000U);
  clock.resample();
  EXPECT_LT(distance(clock.unix_from_monotonic(0), kNow + 7 * kSecond), 1000U);
}

TEST(Clock, GivesOneMomentOneUnixTimeHoweverOftenItIsMeasured) {
  ScriptedClock source;
  Clock clock(source);
  const auto before = clock.unix_from_monotonic(kSecond);
  source.offset += 60'000;
  clock.resample();
  EXPECT_EQ(clock.unix_from_monotonic(kSecond), before) << "the noise of a measurement";
  source.offset += 60'000;
  clock.resample();
  EXPECT_NE(clock.unix_from_monotonic(kSecond), before) << "more than that";
}

TEST(Clock, GivesZeroForATimeBefore1970) {
  ScriptedClock source;
  source.offset = 0;
  const Clock clock(source);
  EXPECT_EQ(clock.unix_from_boottime(kSecond), 0U);
}

TEST(Clock, CanBeReadWhileItIsResampled) {
  Clock clock;
  std::atomic<bool> stop{false};
  std::thread sampler([&] {
    while (!stop) clock.resample();
  });
  const std::uint64_t expected = system_clock_source().realtime_ns();
  const std::uint64_t monotonic = system_clock_source().monotonic_ns();
  std::uint64_t worst = 0;
  for (int i = 0; i < 10'000; ++i) {
    worst = std::max(worst, distance(clock.unix_from_monotonic(monotonic), expected));
  }
  stop = true;
  sampler.join();
  EXPECT_LT(worst, 20'000'000U);  // a torn read would be off by years
}

}  // namespace
}  // namespace ingero
