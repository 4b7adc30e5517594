// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace ingero {

/// What the calling thread has used of the processors since it began.
std::chrono::nanoseconds thread_cpu_time();

/// Where times come from: the kernel's clocks, or a test's. Every value is in nanoseconds.
class ClockSource {
 public:
  virtual ~ClockSource() = default;
  virtual std::uint64_t monotonic_ns() const = 0;  ///< CLOCK_MONOTONIC, as bpf_ktime_get_ns()
  virtual std::uint64_t boottime_ns() const = 0;   ///< CLOCK_BOOTTIME, as task start_boottime
  virtual std::uint64_t realtime_ns() const = 0;   ///< CLOCK_REALTIME, nanoseconds since 1970
};

/// The kernel's clocks. Stateless, lives as long as the process.
const ClockSource& system_clock_source();

/// The one conversion from kernel time to unix time (pitfall "two clocks": comparing them directly
/// puts events into 1970). Holds the two offsets to CLOCK_REALTIME, measured at construction.
///
/// Call resample() now and then: a step of the wall clock moves the
/// monotonic offset, a suspend moves both apart. Reads are lock-free and safe from any thread.
class Clock {
 public:
  explicit Clock(const ClockSource& source = system_clock_source());

  /// Measures the offsets again; they change by more than 0.1 ms or not at all.
  void resample();

  /// Unix nanoseconds of a CLOCK_MONOTONIC time; 0 when the result would lie before 1970.
  std::uint64_t unix_from_monotonic(std::uint64_t monotonic_ns) const;
  /// Unix nanoseconds of a CLOCK_BOOTTIME time; 0 when the result would lie before 1970.
  std::uint64_t unix_from_boottime(std::uint64_t boottime_ns) const;
  /// Upper bound, in ns, of the error of the last sample: half the time between the two
  /// kernel-clock reads around the wall-clock read, the larger of both offsets.
  std::uint64_t uncertainty_ns() const { return uncertainty_ns_.load(std::memory_order_relaxed); }

 private:
  static void settle(std::atomic<std::int64_t>& held_ns, std::int64_t measured_ns);

  const ClockSource& source_;
  std::atomic<std::int64_t> monotonic_offset_ns_{0};
  std::atomic<std::int64_t> boottime_offset_ns_{0};
  std::atomic<std::uint64_t> uncertainty_ns_{0};
};

}  // namespace ingero
