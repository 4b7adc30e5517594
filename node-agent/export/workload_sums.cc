// SPDX-License-Identifier: Apache-2.0
#include "export/workload_sums.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "base/text.h"
#include "export/error_names.h"
#include "export/metrics_table.h"
#include "model/functions.h"

namespace ingero::exporting {
namespace {

/// Lines of a histogram with this many ends: those, +Inf, _sum, _count.
constexpr std::size_t histogram_lines(std::size_t ends) { return ends + 3; }
constexpr std::size_t kPercentiles = 3;

struct SortedCall {
  model::CgroupId cgroup;
  OperationIndex operation;
  std::uint8_t direction;
  const model::CallTotals* totals;

  auto key() const { return std::tie(cgroup, operation, direction); }
};

std::uint8_t bounded_direction(const Operation& operation, std::uint8_t direction) {
  if (!operation.copy) return 0;
  return direction < COPY_DIRECTIONS ? direction : std::uint8_t{COPY_UNKNOWN};
}

std::vector<SortedCall> sort_calls(const model::Snapshot& snapshot) {
  std::vector<SortedCall> sorted;
  sorted.reserve(snapshot.calls.size());
  for (const model::CallSeries& call : snapshot.calls) {
    const auto operation = operation_of(call.function);
    if (!operation) continue;
    sorted.push_back({call.cgroup, *operation,
                      bounded_direction(operations()[*operation], call.direction), &call.totals});
  }
  std::sort(sorted.begin(), sorted.end(),
            [](const SortedCall& a, const SortedCall& b) { return a.key() < b.key(); });
  return sorted;
}

template <typename Counts>
void add_counts(Counts& sum, const Counts& other) {
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += other[i];
}

void take_off(std::uint64_t& sum, std::uint64_t other) { sum -= std::min(sum, other); }

template <typename Counts>
void subtract_counts(Counts& sum, const Counts& other) {
  for (std::size_t i = 0; i < sum.size(); ++i) take_off(sum[i], other[i]);
}

Workload printable(const Workload& workload) {
  Workload clean{escape_terminal(workload.k8s_namespace),
                 escape_terminal(workload.pod),
                 escape_terminal(workload.container),
                 {},
                 workload.max_series,
                 workload.exported};
  for (const auto& [name, value] : workload.labels)
    clean.labels.emplace_back(name, escape_terminal(value));
  return clean;
}

}  // namespace

std::vector<CallRow> sum_calls(const model::Snapshot& snapshot) {
  std::vector<CallRow> rows;
  for (const SortedCall& call : sort_calls(snapshot)) {
    const bool same = !rows.empty() && std::tie(rows.back().cgroup, rows.back().operation,
                                                rows.back().direction) == call.key();
    if (same) {
      rows.back().totals.add(*call.totals);
    } else {
      rows.push_back({call.cgroup, call.operation, call.direction, *call.totals});
    }
  }
  return rows;
}

std::vector<DurationRow> sum_durations(std::span<const CallRow> rows) {
  std::vector<DurationRow> sums;
  for (const CallRow& row : rows) {
    const bool same =
        !sums.empty() && sums.back().cgroup == row.cgroup && sums.back().operation == row.operation;
    if (!same) sums.push_back({row.cgroup, row.operation, {}});
    add_counts(sums.back().counts, row.totals.durations);
  }
  return sums;
}

void OperationSums::add(const OperationSums& other) {
  calls += other.calls;
  bytes += other.bytes;
  barriers += other.barriers;
  slow += other.slow;
  duration_ns += other.duration_ns;
  add_counts(durations, other.durations);
  add_counts(recent, other.recent);
}

void OperationSums::subtract(const OperationSums& other) {
  take_off(calls, other.calls);
  take_off(bytes, other.bytes);
  take_off(barriers, other.barriers);
  take_off(slow, other.slow);
  take_off(duration_ns, other.duration_ns);
  subtract_counts(durations, other.durations);
}

void CopySums::subtract(const CopySums& other) {
  take_off(bytes, other.bytes);
  take_off(duration_ns, other.duration_ns);
  subtract_counts(durations, other.durations);
  subtract_counts(sizes, other.sizes);
}

void CopySums::add(const CopySums& other) {
  bytes += other.bytes;
  duration_ns += other.duration_ns;
  add_counts(durations, other.durations);
  add_counts(sizes, other.sizes);
}

void WorkloadSums::add(const WorkloadSums& other) {
  for (const auto& [operation, sums] : other.operations) operations[operation].add(sums);
  for (const auto& [direction, sums] : other.copies) copies[direction].add(sums);
  for (const auto& [error, count] : other.errors) errors[error] += count;
  nccl_processes += other.nccl_processes;
  retransmits_ipv4 += other.retransmits_ipv4;
  retransmits_ipv6 += other.retransmits_ipv6;
  wait_ns += other.wait_ns;
  add_counts(waits, other.waits);
}

void WorkloadSums::subtract(const WorkloadSums& other) {
  const auto subtract_from = [](auto& rows, const auto& others) {
    for (const auto& [key, sums] : others)
      if (const auto row = rows.find(key); row != rows.end()) row->second.subtract(sums);
  };
  subtract_from(operations, other.operations);
  subtract_from(copies, other.copies);
  for (const auto& [error, count] : other.errors)
    if (const auto row = errors.find(error); row != errors.end()) take_off(row->second, count);
  take_off(retransmits_ipv4, other.retransmits_ipv4);
  take_off(retransmits_ipv6, other.retransmits_ipv6);
  take_off(wait_ns, other.wait_ns);
  subtract_counts(waits, other.waits);
}

void WorkloadSums::clear_present() {
  nccl_processes = 0;
  for (auto& [operation, sums] : operations) sums.recent = {};
}

std::size_t WorkloadSums::series() const {
  std::size_t lines = (retransmits_ipv4 != 0) + (retransmits_ipv6 != 0);
  if (has_waits()) lines += histogram_lines(kDurationEnds);
  lines += errors.size() + (nccl_processes != 0 ? 1 : 0) + (operations.empty() ? 0 : 1);
  for (const auto& [index, sums] : operations) {
    const Operation& operation = exporting::operations()[index];
    lines += 1 + kPercentiles;
    if (operation.api == API_SOURCE_NCCL || operation.synchronize)
      lines += histogram_lines(kDurationEnds);
    if (operation.collective) lines += 3;  // count, bytes, barriers
  }
  return lines + copies.size() * (1 + histogram_lines(kDurationEnds) + histogram_lines(kSizeEnds));
}

WorkloadTable::WorkloadTable(const model::Snapshot& snapshot, const WorkloadLookup& lookup) {
  std::vector<model::CgroupId> cgroups;
  const auto name =
      [&](model::CgroupId cgroup) {  // rows of a cgroup mostly come one after the other
        if (cgroups.empty() || cgroups.back() != cgroup) cgroups.push_back(cgroup);
      };
  for (const auto& call : snapshot.calls) name(call.cgroup);
  for (const auto& error : snapshot.errors) name(error.cgroup);
  for (const auto& process : snapshot.processes)
    if (process.counted) name(process.cgroup);
  for (const auto& communicator : snapshot.communicators) name(communicator.cgroup);
  for (const auto& row : snapshot.ended_collectives) name(row.cgroup);
  for (const auto& row : snapshot.retransmits) name(row.cgroup);
  for (const auto& row : snapshot.waits) name(row.cgroup);
  std::sort(cgroups.begin(), cgroups.end());
  cgroups.erase(std::unique(cgroups.begin(), cgroups.end()), cgroups.end());

  std::map<std::tuple<bool, std::string, std::string, std::string>, std::size_t> known;
  for (const model::CgroupId cgroup : cgroups) {
    Workload workload = lookup ? printable(lookup(cgroup)) : Workload{};
    const auto [place, added] = known.try_emplace(
        {workload.exported, workload.k8s_namespace, workload.pod, workload.container},
        workloads_.size());
    if (added) workloads_.push_back(std::move(workload));
    by_cgroup_.emplace(cgroup, place->second);
  }
}

std::vector<WorkloadSums> sum_workloads(const WorkloadTable& table, std::span<const CallRow> calls,
                                        std::span<const DurationRow> recent) {
  std::vector<WorkloadSums> sums(table.workloads().size());
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i].workload = table.workloads()[i];
  for (const CallRow& call : calls) {
    WorkloadSums& workload = sums[table.index_of(call.cgroup)];
    OperationSums& operation = workload.operations[call.operation];
    operation.calls += call.totals.calls;
    operation.bytes += call.totals.bytes;
    operation.barriers += call.totals.barriers;
    operation.slow += call.totals.slow;
    operation.duration_ns += call.totals.duration_ns;
    add_counts(operation.durations, call.totals.durations);
    if (!operations()[call.operation].copy) continue;
    workload.copies[call.direction].add(
        {call.totals.bytes, call.totals.duration_ns, call.totals.durations, call.totals.sizes});
  }
  for (const DurationRow& row : recent) {
    add_counts(sums[table.index_of(row.cgroup)].operations[row.operation].recent, row.counts);
  }
  return sums;
}

bool WorkloadSums::has_waits() const {
  return std::any_of(waits.begin(), waits.end(), [](auto n) { return n != 0; });
}

void add_host_layers(const model::Snapshot& snapshot, const WorkloadTable& table,
                     std::vector<WorkloadSums>& sums) {
  for (const model::WaitSeries& row : snapshot.waits) {
    WorkloadSums& workload = sums[table.index_of(row.cgroup)];
    workload.wait_ns += row.wait_ns;
    add_counts(workload.waits, row.durations);
  }
  std::map<std::pair<std::string, std::string>, std::size_t> pods;
  for (const model::RetransmitSeries& row : snapshot.retransmits) {
    std::size_t index = table.index_of(row.cgroup);
    if (row.whole_pod) {
      const Workload owner = sums[index].workload;
      const auto [place, added] = pods.try_emplace({owner.k8s_namespace, owner.pod}, sums.size());
      if (added) {
        sums.emplace_back().workload = owner;
        sums.back().workload.container.clear();
      }
      index = place->second;
    }
    (row.ipv6 ? sums[index].retransmits_ipv6 : sums[index].retransmits_ipv4) += row.segments;
  }
}

void add_errors(const model::Snapshot& snapshot, const WorkloadTable& table,
                std::vector<WorkloadSums>& sums) {
  for (const model::ErrorSeries& error : snapshot.errors) {
    const auto operation = operation_of(error.function);
    if (!operation || !model::is_failure(operations()[*operation].api, error.code)) continue;
    WorkloadSums& workload = sums[table.index_of(error.cgroup)];
    workload.errors[{*operation, error_name(*operation, error.code)}] += error.count;
  }
}

}  // namespace ingero::exporting
