// SPDX-License-Identifier: Apache-2.0
#include "export/family_set.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace ingero::exporting {
namespace {

constexpr double kNsPerMicrosecond = 1000;

prometheus::MetricType prometheus_type(MetricType type) {
  switch (type) {
    case MetricType::kCounter: return prometheus::MetricType::Counter;
    case MetricType::kGauge: return prometheus::MetricType::Gauge;
    case MetricType::kHistogram: return prometheus::MetricType::Histogram;
  }
  return prometheus::MetricType::Untyped;
}

std::vector<prometheus::MetricFamily> declared_families() {
  std::vector<prometheus::MetricFamily> families;
  families.reserve(metrics_table().size());
  for (const MetricInfo& info : metrics_table()) {
    families.push_back(
        {std::string(info.name), std::string(info.help), prometheus_type(info.type), {}});
  }
  return families;
}

void append_label(prometheus::ClientMetric& metric, std::string_view name, std::string_view value) {
  auto& label = metric.label.emplace_back();
  label.name = name;
  label.value = value;
}

}  // namespace

FamilySet::FamilySet(std::string node) : node_(std::move(node)), families_(declared_families()) {}

prometheus::ClientMetric& FamilySet::append(MetricId id, const Workload* workload,
                                            std::initializer_list<std::string_view> labels) {
  const auto names = metric_info(id).own_labels();
  assert(metric_info(id).workload == (workload != nullptr));
  assert(names.size() == labels.size());
  auto& metric = families_[static_cast<std::size_t>(id)].metric.emplace_back();
  metric.label.reserve(names.size() +
                       (workload ? std::size(kWorkloadLabels) + workload->labels.size() : 0));
  if (workload) {
    append_label(metric, kWorkloadLabels[0], node_);
    append_label(metric, kWorkloadLabels[1], workload->k8s_namespace);
    append_label(metric, kWorkloadLabels[2], workload->pod);
    append_label(metric, kWorkloadLabels[3], workload->container);
    for (const auto& [name, value] : workload->labels) append_label(metric, name, value);
  }
  std::size_t i = 0;
  for (const std::string_view value : labels) append_label(metric, names[i++], value);
  return metric;
}

void FamilySet::set_value(MetricId id, prometheus::ClientMetric& metric, double value) {
  switch (metric_info(id).type) {
    case MetricType::kCounter: metric.counter.value = value; return;
    case MetricType::kGauge: metric.gauge.value = value; return;
    case MetricType::kHistogram: return;
  }
}

void FamilySet::add(MetricId id, const Workload& workload,
                    std::initializer_list<std::string_view> labels, double value) {
  set_value(id, append(id, &workload, labels), value);
}

void FamilySet::add(MetricId id, std::initializer_list<std::string_view> labels, double value) {
  set_value(id, append(id, nullptr, labels), value);
}

void FamilySet::add(MetricId id, const Workload& workload,
                    std::initializer_list<std::string_view> labels,
                    prometheus::ClientMetric::Histogram histogram) {
  append(id, &workload, labels).histogram = std::move(histogram);
}

std::vector<prometheus::MetricFamily> FamilySet::take() {
  auto families = std::exchange(families_, declared_families());
  std::erase_if(families, [](const auto& family) { return family.metric.empty(); });
  return families;
}

prometheus::ClientMetric::Histogram duration_histogram(const model::DurationCounts& counts,
                                                       std::uint64_t duration_ns, double unit_ns,
                                                       DurationEnds ends) {
  prometheus::ClientMetric::Histogram histogram;
  histogram.bucket.reserve(kDurationEnds);
  std::uint64_t cumulative = 0;
  std::size_t bucket = 0;
  for (std::size_t i = 0; i < kDurationEnds; ++i) {
    for (; bucket <= kernel_bucket_of_end(i); ++bucket) cumulative += counts[bucket];
    if ((ends >> i & 1) == 0) continue;
    // A quotient of two integers, so that the label is the decimal number and not one beside it.
    const double end = static_cast<double>(std::uint64_t{1} << i) / (unit_ns / kNsPerMicrosecond);
    histogram.bucket.push_back({cumulative, end});
  }
  for (; bucket < counts.size(); ++bucket) cumulative += counts[bucket];
  histogram.sample_count = cumulative;
  histogram.sample_sum = static_cast<double>(duration_ns) / unit_ns;
  return histogram;
}

prometheus::ClientMetric::Histogram size_histogram(const model::SizeCounts& counts,
                                                   std::uint64_t bytes) {
  prometheus::ClientMetric::Histogram histogram;
  histogram.bucket.reserve(kSizeEnds);
  std::uint64_t cumulative = 0;
  for (std::size_t i = 0; i < kSizeEnds; ++i) {
    cumulative += counts[i];
    histogram.bucket.push_back({cumulative, model::size_bucket_end(i)});
  }
  histogram.sample_count = cumulative + counts[kSizeEnds];
  histogram.sample_sum = static_cast<double>(bytes);
  return histogram;
}

}  // namespace ingero::exporting
