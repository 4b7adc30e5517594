// SPDX-License-Identifier: Apache-2.0
#include "export/latency_window.h"

#include <algorithm>
#include <tuple>

namespace ingero::exporting {

LatencyWindow::LatencyWindow(std::uint64_t start_ns) { samples_.push_back({start_ns, {}, {}}); }

LatencyWindow::Sample LatencyWindow::compress(std::uint64_t now_ns,
                                              std::span<const DurationRow> rows) {
  Sample sample;
  sample.time_ns = now_ns;
  sample.entries.reserve(rows.size());
  for (const DurationRow& row : rows) {
    for (std::size_t i = 0; i < row.counts.size(); ++i) {
      if (row.counts[i] == 0) continue;
      sample.buckets.push_back({static_cast<std::uint32_t>(i), row.counts[i]});
    }
    sample.entries.push_back({row.cgroup, row.operation, sample.buckets.size()});
  }
  return sample;
}

void LatencyWindow::forget_before(std::uint64_t now_ns) {
  // The newest sample that is a minute old is the one to subtract; older ones are of no use.
  while (samples_.size() > 1 && samples_[1].time_ns + kLengthNs <= now_ns) samples_.pop_front();
}

std::vector<DurationRow> LatencyWindow::observe(std::uint64_t now_ns,
                                                std::span<const DurationRow> rows) {
  forget_before(now_ns);
  const Sample& base = samples_.front();
  std::vector<DurationRow> recent;
  std::size_t next = 0;
  for (const DurationRow& row : rows) {
    const auto before = [&](const Entry& entry) {
      return std::tie(entry.cgroup, entry.operation) < std::tie(row.cgroup, row.operation);
    };
    while (next < base.entries.size() && before(base.entries[next])) ++next;
    DurationRow difference = row;
    if (next < base.entries.size() && base.entries[next].cgroup == row.cgroup &&
        base.entries[next].operation == row.operation) {
      const std::size_t begin = next == 0 ? 0 : base.entries[next - 1].end;
      for (std::size_t i = begin; i < base.entries[next].end; ++i) {
        std::uint64_t& count = difference.counts[base.buckets[i].index];
        count -= std::min(count, base.buckets[i].count);
      }
    }
    const bool called = std::any_of(difference.counts.begin(), difference.counts.end(),
                                    [](std::uint64_t count) { return count != 0; });
    if (called) recent.push_back(difference);
  }
  if (samples_.back().time_ns + kSampleNs <= now_ns) samples_.push_back(compress(now_ns, rows));
  return recent;
}

}  // namespace ingero::exporting
