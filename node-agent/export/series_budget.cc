// SPDX-License-Identifier: Apache-2.0
#include "export/series_budget.h"

#include <algorithm>
#include <map>
#include <utility>

namespace ingero::exporting {
namespace {

/// Lines of a workload that has all that any of these has: more than the sum of the rest can need.
std::size_t series_of_sum(const std::vector<WorkloadSums>& workloads) {
  WorkloadSums all;
  for (const WorkloadSums& workload : workloads) {
    for (const auto& [operation, sums] : workload.operations) all.operations.try_emplace(operation);
    for (const auto& [direction, sums] : workload.copies) all.copies.try_emplace(direction);
    for (const auto& [error, count] : workload.errors) all.errors.try_emplace(error, 0);
    all.nccl_processes += workload.nccl_processes;
  }
  return all.series();
}

}  // namespace

BudgetedWorkloads apply_budget(std::vector<WorkloadSums> workloads, std::size_t max_series) {
  BudgetedWorkloads result;
  result.folded.assign(workloads.size(), false);
  std::size_t total = 0;
  bool limited = false;
  for (const WorkloadSums& workload : workloads) {
    total += workload.series();
    limited = limited || workload.workload.max_series != 0;
  }
  if (total <= max_series && !limited) {
    result.kept = std::move(workloads);
    result.series = total;
    return result;
  }

  const std::size_t reserved = series_of_sum(workloads);
  WorkloadSums rest;
  rest.workload.container = kOther;
  std::map<std::pair<std::string, std::string>, std::size_t> of_pod;
  const bool all_fit = total <= max_series;
  for (std::size_t i = 0; i < workloads.size(); ++i) {
    const std::size_t series = workloads[i].series();
    const Workload& workload = workloads[i].workload;
    std::size_t& pod_series = of_pod[{workload.k8s_namespace, workload.pod}];
    const bool fits = (all_fit || result.series + series + reserved <= max_series) &&
                      (workload.max_series == 0 || pod_series + series <= workload.max_series);
    if (fits) pod_series += series;
    if (!fits || workloads[i].workload == rest.workload) {
      rest.add(workloads[i]);
      result.folded[i] = true;
      result.dropped += series;
    } else {
      result.series += series;
      result.kept.push_back(std::move(workloads[i]));
    }
  }
  result.series += rest.series();
  if (result.dropped != 0) result.kept.push_back(std::move(rest));
  return result;
}

}  // namespace ingero::exporting
