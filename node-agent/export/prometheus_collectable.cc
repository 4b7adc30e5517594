// SPDX-License-Identifier: Apache-2.0
#include "export/prometheus_collectable.h"

#include <prometheus/text_serializer.h>

#include <algorithm>
#include <exception>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "export/workload_sums.h"
#include "model/functions.h"

namespace ingero::exporting {
namespace {

constexpr double kNsPerMicrosecond = 1e3;
constexpr double kNsPerMillisecond = 1e6;
constexpr double kNsPerSecond = 1e9;

struct Percentile {
  std::string_view label;
  double quantile;
};
constexpr Percentile kPercentiles[] = {{"p50", 0.50}, {"p95", 0.95}, {"p99", 0.99}};

double number(std::uint64_t value) { return static_cast<double>(value); }

void add_percentiles(const Workload& workload, const Operation& operation,
                     const model::DurationCounts& recent, FamilySet& families) {
  const bool called = std::any_of(recent.begin(), recent.end(), [](auto n) { return n != 0; });
  if (!called) return;
  for (const auto& [label, quantile] : kPercentiles) {
    families.add(MetricId::kCudaOperationDuration, workload,
                 {operation.source, operation.label, label},
                 model::duration_quantile_ns(recent, quantile) / kNsPerMicrosecond);
  }
}

void add_operation(const Workload& workload, const Operation& operation, const OperationSums& sums,
                   DurationEnds ends, FamilySet& families) {
  families.add(MetricId::kCudaOperations, workload, {operation.source, operation.label},
               number(sums.calls));
  add_percentiles(workload, operation, sums.recent, families);
  if (operation.api == API_SOURCE_NCCL) {
    families.add(MetricId::kNcclCallDuration, workload, {operation.label},
                 duration_histogram(sums.durations, sums.duration_ns, kNsPerSecond, ends));
  }
  if (operation.synchronize) {
    families.add(MetricId::kCudaSyncWait, workload, {operation.label},
                 duration_histogram(sums.durations, sums.duration_ns, kNsPerSecond, ends));
  }
  if (operation.collective) {
    families.add(MetricId::kNcclCollectives, workload, {operation.label}, number(sums.calls));
    families.add(MetricId::kNcclCollectiveBytes, workload, {operation.label}, number(sums.bytes));
    families.add(MetricId::kNcclBarriers, workload, {operation.label}, number(sums.barriers));
  }
}

void add_copies(const Workload& workload, std::uint8_t direction, const CopySums& sums,
                DurationEnds ends, FamilySet& families) {
  const std::string_view label = model::direction_label(direction);
  families.add(MetricId::kMemcpyBytes, workload, {label}, number(sums.bytes));
  families.add(MetricId::kMemcpyDuration, workload, {label},
               duration_histogram(sums.durations, sums.duration_ns, kNsPerMillisecond, ends));
  families.add(MetricId::kCudaCopySizes, workload, {model::memcpy_kind_name(direction)},
               size_histogram(sums.sizes, sums.bytes));
}

void add_workload(const WorkloadSums& sums, DurationEnds ends, FamilySet& families) {
  std::uint64_t slow = 0;
  for (const auto& [index, operation] : sums.operations) {
    add_operation(sums.workload, operations()[index], operation, ends, families);
    slow += operation.slow;
  }
  if (!sums.operations.empty()) families.add(MetricId::kAnomalies, sums.workload, {}, number(slow));
  for (const auto& [direction, copies] : sums.copies) {
    add_copies(sums.workload, direction, copies, ends, families);
  }
  for (const auto& [key, count] : sums.errors) {
    const Operation& operation = operations()[key.first];
    const bool nccl = operation.api == API_SOURCE_NCCL;
    families.add(nccl ? MetricId::kNcclErrors : MetricId::kCudaErrors, sums.workload,
                 {operation.label, key.second}, number(count));
  }
  if (sums.retransmits_ipv4 != 0)
    families.add(MetricId::kTcpRetransmits, sums.workload, {"ipv4"}, number(sums.retransmits_ipv4));
  if (sums.retransmits_ipv6 != 0)
    families.add(MetricId::kTcpRetransmits, sums.workload, {"ipv6"}, number(sums.retransmits_ipv6));
  if (sums.has_waits())
    families.add(MetricId::kRunQueueWait, sums.workload, {},
                 duration_histogram(sums.waits, sums.wait_ns, kNsPerSecond, ends));
  if (sums.nccl_processes != 0) {
    families.add(MetricId::kNcclProcesses, sums.workload, {}, number(sums.nccl_processes));
  }
}

bool has_nccl_process(const WorkloadSums& sums) { return sums.nccl_processes != 0; }

}  // namespace

PrometheusCollectable::PrometheusCollectable(CollectableOptions options, SnapshotSource source,
                                             WorkloadLookup lookup, const ClockSource& clock)
    : source_(std::move(source)),
      lookup_(std::move(lookup)),
      clock_(clock),
      options_(std::move(options)),
      window_(clock.monotonic_ns()) {}

void PrometheusCollectable::add_workloads(const model::Snapshot& snapshot,
                                          FamilySet& families) const {
  const WorkloadTable table(snapshot, lookup_);
  const auto calls = sum_calls(snapshot);
  const auto recent = window_.observe(clock_.monotonic_ns(), sum_durations(calls));
  auto sums = sum_workloads(table, calls, recent);
  add_errors(snapshot, table, sums);
  const Roster roster = make_roster(snapshot, table, sums);
  add_host_layers(snapshot, table, sums);

  // A zero instead of no series: "no process uses NCCL" is told from "no agent".
  if (std::none_of(sums.begin(), sums.end(), has_nccl_process)) {
    families.add(MetricId::kNcclProcesses, Workload{}, {}, 0);
  }
  SeriesRoom room(options_.max_series);
  const BudgetedWorkloads budgeted = budget_.apply(std::move(sums), room, options_.max_series);
  for (const WorkloadSums& workload : budgeted.kept)
    add_workload(workload, options_.duration_ends, families);
  const std::size_t left_out = roster_series_.add(roster, table, budgeted.folded, room, families);
  count_dropped(budgeted.dropped + left_out);
}

void PrometheusCollectable::count_dropped(std::size_t dropped_now) const {
  if (dropped_now > dropped_now_) dropped_total_ += dropped_now - dropped_now_;
  dropped_now_ = dropped_now;
}

void PrometheusCollectable::set_limits(std::size_t max_series, DurationEnds duration_ends) {
  const std::lock_guard lock(mutex_);
  options_.max_series = max_series;
  options_.duration_ends = duration_ends;
}

std::vector<prometheus::MetricFamily> PrometheusCollectable::Collect() const {
  // One scrape after the other, from the counts to the text: an older snapshot that is told after a
  // newer one would be less.
  const std::lock_guard turn(turn_);
  const auto snapshot = source_ ? source_() : nullptr;
  const AgentStatus status = options_.status ? options_.status() : AgentStatus{};
  FamilySet families(escape_terminal(options_.node));
  const std::lock_guard lock(mutex_);
  if (snapshot) {
    add_workloads(*snapshot, families);
    add_agent_metrics(*snapshot, families);
    folded_error_codes_ = snapshot->folded_error_codes;
  }
  families.add(MetricId::kBuildInfo,
               {escape_terminal(options_.version), escape_terminal(options_.revision)}, 1);
  add_status(status, families);
  add_dropped({dropped_total_, folded_error_codes_}, families);
  add_process_stats(read_process_stats(options_.proc), families);
  return families.take();
}

Result<std::string> metrics_text(const prometheus::Collectable& collectable) {
  try {
    return prometheus::TextSerializer().Serialize(collectable.Collect());
  } catch (const std::exception& problem) {
    return fail(Error{"write metrics", "", problem.what(), "", 0});
  }
}

}  // namespace ingero::exporting
