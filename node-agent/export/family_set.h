// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <prometheus/metric_family.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "export/metrics_table.h"
#include "export/workload.h"
#include "model/histogram.h"

namespace ingero::exporting {

/// Collects the series of one scrape into families as the table declares them. The caller takes
/// care that no two series of a metric have equal labels.
class FamilySet {
 public:
  explicit FamilySet(std::string node);

  /// A counter's or gauge's series. `labels`: values of the metric's own labels, in the table's
  /// order.
  void add(MetricId id, const Workload& workload, std::initializer_list<std::string_view> labels,
           double value);
  /// The same for a metric without workload labels.
  void add(MetricId id, std::initializer_list<std::string_view> labels, double value);
  void add(MetricId id, const Workload& workload, std::initializer_list<std::string_view> labels,
           prometheus::ClientMetric::Histogram histogram);

  /// The families that have series, in the table's order. Leaves the set empty.
  std::vector<prometheus::MetricFamily> take();

 private:
  prometheus::ClientMetric& append(MetricId id, const Workload* workload,
                                   std::initializer_list<std::string_view> labels);
  void set_value(MetricId id, prometheus::ClientMetric& metric, double value);

  std::string node_;
  std::vector<prometheus::MetricFamily> families_;
};

/// Which ends of duration buckets are exported: bit i stands for 2^i us.
using DurationEnds = std::uint32_t;
inline constexpr DurationEnds kAllDurationEnds = (DurationEnds{1} << kDurationEnds) - 1;

/// The exported histogram of durations. `unit_ns`: nanoseconds of the metric's unit.
prometheus::ClientMetric::Histogram duration_histogram(const model::DurationCounts& counts,
                                                       std::uint64_t duration_ns, double unit_ns,
                                                       DurationEnds ends = kAllDurationEnds);

prometheus::ClientMetric::Histogram size_histogram(const model::SizeCounts& counts,
                                                   std::uint64_t bytes);

}  // namespace ingero::exporting
