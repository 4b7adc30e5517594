// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "export/agent_metrics.h"
#include "export/family_set.h"
#include "export/latency_window.h"
#include "export/roster.h"
#include "export/series_budget.h"
#include "export/workload.h"
#include "model/snapshot.h"

namespace ingero::exporting {

struct CollectableOptions {
  std::string node;                ///< the `node` label
  std::size_t max_series = 10000;  ///< budget of workload series, in lines of /metrics
  std::string version;             ///< of the agent, for ingero_build_info
  std::string revision;
  DurationEnds duration_ends = kAllDurationEnds;
  std::string proc = "/proc";           ///< where the agent's own statistics are read
  std::function<AgentStatus()> status;  ///< asked at each scrape; none: ready
};

/// The latest snapshot; may be null before the first one.
using SnapshotSource = std::function<std::shared_ptr<const model::Snapshot>()>;

/// Makes the series of a scrape from a snapshot. Thread safe; scrapes take turns. They alone feed the
/// percentiles' window, so that counters that nobody asks for are not read.
class PrometheusCollectable final : public prometheus::Collectable {
 public:
  PrometheusCollectable(CollectableOptions options, SnapshotSource source, WorkloadLookup lookup,
                        const ClockSource& clock = system_clock_source());

  /// Takes effect at the next scrape.
  void set_limits(std::size_t max_series, DurationEnds duration_ends);

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  void add_workloads(const model::Snapshot& snapshot, FamilySet& families) const;
  void count_dropped(std::size_t dropped_now) const;

  const SnapshotSource source_;
  const WorkloadLookup lookup_;
  const ClockSource& clock_;

  mutable std::mutex turn_;   ///< held while a scrape is made, also while its snapshot is
  mutable std::mutex mutex_;  ///< for all below: Collect() is const to its callers only
  CollectableOptions options_;
  mutable LatencyWindow window_;
  mutable SeriesBudget budget_;
  mutable RosterSeries roster_series_;
  mutable std::uint64_t folded_error_codes_ = 0;
  mutable std::size_t dropped_now_ = 0;
  mutable std::uint64_t dropped_total_ = 0;
};

/// The body of /metrics.
Result<std::string> metrics_text(const prometheus::Collectable& collectable);

/// Its content type.
inline constexpr const char* kMetricsContentType = "text/plain; version=0.0.4; charset=utf-8";

}  // namespace ingero::exporting
