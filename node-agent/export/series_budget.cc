// SPDX-License-Identifier: Apache-2.0
#include "export/series_budget.h"

#include <algorithm>
#include <numeric>

namespace ingero::exporting {
namespace {

/// At most this part of the room is kept for "other", so that one container with very many kinds of series
/// that gives way to others does not take their room as "other". Beyond it, "other" comes on top: there
/// are only so many kinds.
constexpr std::size_t kShareOfOther = 4;

bool is_other(const Workload& workload) {
  return workload.k8s_namespace.empty() && workload.pod.empty() && workload.container == kOther;
}

/// Adds what decides how many lines there are.
void add_kinds(WorkloadSums& all, const WorkloadSums& workload) {
  for (const auto& [operation, sums] : workload.operations) all.operations.try_emplace(operation);
  for (const auto& [direction, sums] : workload.copies) all.copies.try_emplace(direction);
  for (const auto& [error, count] : workload.errors) all.errors.try_emplace(error, 0);
  all.nccl_processes += workload.nccl_processes;
  all.retransmits_ipv4 += workload.retransmits_ipv4;
  all.retransmits_ipv6 += workload.retransmits_ipv6;
  all.waits[0] += workload.has_waits() ? 1 : 0;
}

}  // namespace

bool SeriesRoom::take(const Workload& workload, std::size_t series) {
  if (series > left_) return false;
  if (workload.max_series != 0) {
    std::size_t& used = of_pod_[{workload.k8s_namespace, workload.pod}];
    if (used + series > workload.max_series) return false;
    used += series;
  }
  left_ -= series;
  return true;
}

SeriesBudget::Account& SeriesBudget::account_of(const Workload& workload) {
  Account& account = accounts_[{workload.k8s_namespace, workload.pod, workload.container}];
  if (account.since == 0) account.since = ++came_;
  account.round = round_;
  return account;
}

/// Lines of a workload that has all that any of these has, and that "other" has had: more than the sum of
/// those that will be folded can need.
std::size_t SeriesBudget::series_of_other(const std::vector<WorkloadSums>& workloads) const {
  WorkloadSums all;
  add_kinds(all, other_);
  for (const WorkloadSums& workload : workloads) add_kinds(all, workload);
  return all.series();
}

std::vector<std::size_t> SeriesBudget::order_of(const std::vector<WorkloadSums>& workloads,
                                                std::size_t max_series) {
  const std::size_t share = max_series / std::max<std::size_t>(workloads.size(), 1);
  std::vector<std::tuple<bool, bool, std::uint64_t, std::size_t>> ranks;
  for (std::size_t i = 0; i < workloads.size(); ++i) {
    if (!workloads[i].workload.exported) continue;
    const Account& account = account_of(workloads[i].workload);
    ranks.emplace_back(workloads[i].series() > share, !account.split.is_kept(), account.since, i);
  }
  std::sort(ranks.begin(), ranks.end());
  std::vector<std::size_t> order;
  order.reserve(ranks.size());
  for (const auto& rank : ranks) order.push_back(std::get<3>(rank));
  return order;
}

BudgetedWorkloads SeriesBudget::apply(std::vector<WorkloadSums> workloads, SeriesRoom& room,
                                      std::size_t max_series) {
  ++round_;
  BudgetedWorkloads result;
  result.folded.assign(workloads.size(), false);
  for (std::size_t i = 0; i < workloads.size(); ++i) {
    if (workloads[i].workload.exported) continue;
    result.folded[i] = true;
    workloads[i] = {Workload{workloads[i].workload}, {}, {}, {}};
  }
  const auto total = std::accumulate(
      workloads.begin(), workloads.end(), other_.series(),
      [](std::size_t sum, const WorkloadSums& workload) { return sum + workload.series(); });
  const bool limited = std::any_of(workloads.begin(), workloads.end(), [](const auto& workload) {
    return workload.workload.max_series != 0;
  });
  const std::size_t of_other =
      total <= max_series && !limited ? other_.series() : series_of_other(workloads);
  const std::size_t reserved = room.reserve(std::min(of_other, max_series / kShareOfOther));
  other_.clear_present();
  for (const std::size_t i : order_of(workloads, max_series)) {
    WorkloadSums& workload = workloads[i];
    Account& account = account_of(workload.workload);
    const std::size_t series = workload.series();
    if (!is_other(workload.workload) && room.take(workload.workload, series)) {
      result.kept.push_back(account.split.keep(workload));
      continue;
    }
    other_.add(account.split.fold(workload));
    result.folded[i] = true;
    result.dropped += series;
  }
  room.release(reserved);
  room.reserve(other_.series());
  other_.workload.container = kOther;
  if (other_.series() != 0) result.kept.push_back(other_);
  std::erase_if(accounts_, [&](const auto& entry) { return entry.second.round != round_; });
  return result;
}

}  // namespace ingero::exporting
