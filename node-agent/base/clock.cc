// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"

#include <time.h>

#include <algorithm>
#include <limits>

namespace ingero {
namespace {

// One try can be torn by a preemption between its reads; the tightest of several hardly ever is.
constexpr int kSampleTries = 16;

std::uint64_t read_clock(clockid_t id) {
  timespec now{};
  ::clock_gettime(id, &now);  // fails only for an unknown clock id
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000ULL +
         static_cast<std::uint64_t>(now.tv_nsec);
}

class SystemClockSource final : public ClockSource {
 public:
  std::uint64_t monotonic_ns() const override { return read_clock(CLOCK_MONOTONIC); }
  std::uint64_t boottime_ns() const override { return read_clock(CLOCK_BOOTTIME); }
  std::uint64_t realtime_ns() const override { return read_clock(CLOCK_REALTIME); }
};

struct Sample {
  std::int64_t offset_ns = 0;
  std::uint64_t window_ns = std::numeric_limits<std::uint64_t>::max();
};

/// Realtime minus `clock`, from the try whose two reads of `clock` lie closest together.
Sample sample_offset(const ClockSource& source, std::uint64_t (ClockSource::*clock)() const) {
  Sample best;
  for (int i = 0; i < kSampleTries; ++i) {
    const std::uint64_t before = (source.*clock)();
    const std::uint64_t real = source.realtime_ns();
    const std::uint64_t after = (source.*clock)();
    if (after < before || after - before >= best.window_ns) continue;
    const std::uint64_t middle = before + (after - before) / 2;
    best = Sample{static_cast<std::int64_t>(real - middle), after - before};
  }
  return best;
}

std::uint64_t add_offset(std::uint64_t time_ns, std::int64_t offset_ns) {
  if (offset_ns < 0 && time_ns < static_cast<std::uint64_t>(-offset_ns)) return 0;
  return time_ns + static_cast<std::uint64_t>(offset_ns);
}

}  // namespace

std::chrono::nanoseconds thread_cpu_time() {
  return std::chrono::nanoseconds(read_clock(CLOCK_THREAD_CPUTIME_ID));
}

const ClockSource& system_clock_source() {
  static const SystemClockSource source;
  return source;
}

Clock::Clock(const ClockSource& source) : source_(source) { resample(); }

/// What is measured differs by microseconds each time, although nothing has changed: slewing moves all
/// clocks alike. One moment is to have one unix time, however often it is asked for.
void Clock::settle(std::atomic<std::int64_t>& held_ns, std::int64_t measured_ns) {
  constexpr std::int64_t kNoiseNs = 100'000;
  const std::int64_t difference = measured_ns - held_ns.load(std::memory_order_relaxed);
  if (difference > kNoiseNs || difference < -kNoiseNs)
    held_ns.store(measured_ns, std::memory_order_relaxed);
}

void Clock::resample() {
  const Sample monotonic = sample_offset(source_, &ClockSource::monotonic_ns);
  const Sample boottime = sample_offset(source_, &ClockSource::boottime_ns);
  settle(monotonic_offset_ns_, monotonic.offset_ns);
  settle(boottime_offset_ns_, boottime.offset_ns);
  uncertainty_ns_.store((std::max(monotonic.window_ns, boottime.window_ns) + 1) / 2,
                        std::memory_order_relaxed);
}

std::uint64_t Clock::unix_from_monotonic(std::uint64_t monotonic_ns) const {
  return add_offset(monotonic_ns, monotonic_offset_ns_.load(std::memory_order_relaxed));
}

std::uint64_t Clock::unix_from_boottime(std::uint64_t boottime_ns) const {
  return add_offset(boottime_ns, boottime_offset_ns_.load(std::memory_order_relaxed));
}

}  // namespace ingero
