// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "export/latency_window.h"
#include "export/operations.h"
#include "export/workload.h"
#include "model/snapshot.h"

namespace ingero::exporting {

/// The calls of all processes of a cgroup, of all variants of a function.
struct CallRow {
  model::CgroupId cgroup = model::CgroupId::kUnknown;
  OperationIndex operation = 0;
  std::uint8_t direction = 0;  ///< enum copy_direction; 0 for anything but copies
  model::CallTotals totals;
};

/// Sums the snapshot's calls, in order of (cgroup, operation, direction). Rows with an unknown
/// function id are left out.
std::vector<CallRow> sum_calls(const model::Snapshot& snapshot);

/// What LatencyWindow reads. `rows` as sum_calls() gives them.
std::vector<DurationRow> sum_durations(std::span<const CallRow> rows);

struct OperationSums {
  std::uint64_t calls = 0;
  std::uint64_t bytes = 0;
  std::uint64_t barriers = 0;
  std::uint64_t slow = 0;
  std::uint64_t duration_ns = 0;
  model::DurationCounts durations{};
  model::DurationCounts recent{};  ///< of about the last minute: no counter

  void add(const OperationSums& other);
  void subtract(const OperationSums& other);
};

struct CopySums {
  std::uint64_t bytes = 0;
  std::uint64_t duration_ns = 0;
  model::DurationCounts durations{};
  model::SizeCounts sizes{};

  void add(const CopySums& other);
  void subtract(const CopySums& other);
};

/// Everything that is exported of one workload, but for its processes and communicators.
struct WorkloadSums {
  Workload workload;
  std::map<OperationIndex, OperationSums> operations;
  std::map<std::uint8_t, CopySums> copies;                                 ///< by direction
  std::map<std::pair<OperationIndex, std::string>, std::uint64_t> errors;  ///< by name of the error
  std::uint64_t nccl_processes = 0;                                        ///< now: no counter
  std::uint64_t retransmits_ipv4 = 0, retransmits_ipv6 = 0;
  std::uint64_t wait_ns = 0;
  model::DurationCounts waits{};

  void add(const WorkloadSums& other);
  /// Takes counters off, none below zero; what is no counter stays.
  void subtract(const WorkloadSums& other);
  /// Leaves the counters.
  void clear_present();
  bool has_waits() const;
  /// Lines of /metrics; percentiles are counted whether or not there are any now.
  std::size_t series() const;
};

/// The workloads that a snapshot names, oldest first: in order of their lowest cgroup id, which the
/// kernel hands out in ascending order. Cgroups with equal labels are one workload.
class WorkloadTable {
 public:
  WorkloadTable(const model::Snapshot& snapshot, const WorkloadLookup& lookup);

  /// Of a cgroup that the snapshot names.
  std::size_t index_of(model::CgroupId cgroup) const { return by_cgroup_.at(cgroup); }
  const std::vector<Workload>& workloads() const { return workloads_; }

 private:
  std::vector<Workload> workloads_;
  std::unordered_map<model::CgroupId, std::size_t, model::IdentityHash> by_cgroup_;
};

/// One entry per workload of `table`, in its order. `recent` as LatencyWindow gives it.
std::vector<WorkloadSums> sum_workloads(const WorkloadTable& table, std::span<const CallRow> calls,
                                        std::span<const DurationRow> recent);

/// Adds the snapshot's retransmissions and waits for a processor; those that are known by their pod only
/// become workloads without a container.
void add_host_layers(const model::Snapshot& snapshot, const WorkloadTable& table,
                     std::vector<WorkloadSums>& sums);

/// Adds the snapshot's errors. Codes that are no failure are left out.
void add_errors(const model::Snapshot& snapshot, const WorkloadTable& table,
                std::vector<WorkloadSums>& sums);

}  // namespace ingero::exporting
