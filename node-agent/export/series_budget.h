// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "export/other.h"
#include "export/split_sum.h"
#include "export/workload_sums.h"

namespace ingero::exporting {

/// Lines of /metrics that may still be written: of all, and of the pods that have a limit of their own.
class SeriesRoom {
 public:
  explicit SeriesRoom(std::size_t max_series) : left_(max_series) {}

  /// Takes `series` lines for a workload, if there is room.
  bool take(const Workload& workload, std::size_t series);
  /// Puts lines aside, as far as there are any; how many.
  std::size_t reserve(std::size_t series) {
    const std::size_t taken = std::min(left_, series);
    left_ -= taken;
    return taken;
  }
  void release(std::size_t series) { left_ += series; }

 private:
  std::size_t left_;
  std::map<std::pair<std::string, std::string>, std::size_t> of_pod_;
};

/// What is exported of workloads.
struct BudgetedWorkloads {
  std::vector<WorkloadSums> kept;  ///< the sum of the others, if there ever were any, comes last
  std::vector<bool> folded;        ///< by index of the input
  std::size_t dropped = 0;         ///< lines that the folded workloads would have had
};

/// Shares the room for series out to workloads, and remembers what "other" has been given: whatever
/// comes, goes or grows, no counter falls and the sum over all is what was counted. A container that has
/// moved from one to the other goes on in both places from where it was.
///
/// Those that have series keep them as long as they do not take more than an equal share; then come
/// the new ones, oldest first; then those that take more than their share. Not thread safe.
class SeriesBudget {
 public:
  /// `room` is what may be written; what is left of it is for rosters.
  BudgetedWorkloads apply(std::vector<WorkloadSums> workloads, SeriesRoom& room,
                          std::size_t max_series);

 private:
  using Key = std::tuple<std::string, std::string, std::string>;  // namespace, pod, container
  struct Account {
    SplitSum<WorkloadSums> split;
    std::uint64_t since = 0;  ///< order in which they came
    std::uint64_t round = 0;
  };

  Account& account_of(const Workload& workload);
  std::vector<std::size_t> order_of(const std::vector<WorkloadSums>& workloads,
                                    std::size_t max_series);
  std::size_t series_of_other(const std::vector<WorkloadSums>& workloads) const;

  std::map<Key, Account> accounts_;
  WorkloadSums other_;  ///< all that folded workloads have ever counted
  std::uint64_t round_ = 0;
  std::uint64_t came_ = 0;
};

}  // namespace ingero::exporting
