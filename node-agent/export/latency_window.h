// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "export/operations.h"
#include "model/histogram.h"
#include "model/identity.h"

namespace ingero::exporting {

/// Durations of one operation in one cgroup.
struct DurationRow {
  model::CgroupId cgroup = model::CgroupId::kUnknown;
  OperationIndex operation = 0;
  model::DurationCounts counts{};
};

/// Turns durations since the start into those of about the last minute, by differences.
///
/// It keeps a sample every 10 s or, if it is fed less often, at each feeding: then the window
/// reaches back to the last feeding that is a minute old. Not thread safe.
class LatencyWindow {
 public:
  static constexpr std::uint64_t kLengthNs = 60'000'000'000;
  static constexpr std::uint64_t kSampleNs = 10'000'000'000;

  /// Calls before `start_ns` are outside the window: the rows start at zero there.
  explicit LatencyWindow(std::uint64_t start_ns);

  /// `rows`: totals since the start, in order of (cgroup, operation), each pair once. Gives the
  /// rows with calls in the window, in the same order.
  std::vector<DurationRow> observe(std::uint64_t now_ns, std::span<const DurationRow> rows);

 private:
  struct Bucket {
    std::uint32_t index;
    std::uint64_t count;
  };
  struct Entry {
    model::CgroupId cgroup;
    OperationIndex operation;
    std::size_t end;  ///< of its buckets; they begin where those of the entry before end
  };
  /// Most buckets are empty, so only the others are kept.
  struct Sample {
    std::uint64_t time_ns = 0;
    std::vector<Entry> entries;
    std::vector<Bucket> buckets;
  };
  static Sample compress(std::uint64_t now_ns, std::span<const DurationRow> rows);
  void forget_before(std::uint64_t now_ns);

  std::deque<Sample> samples_;  ///< oldest first, never empty; the first is what is subtracted
};

}  // namespace ingero::exporting
