// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "export/workload_sums.h"

namespace ingero::exporting {

/// The `container` (and `comm_id`) of what found no room in the series budget.
inline constexpr const char* kOther = "other";

/// What is left of workloads when the budget is spent.
struct BudgetedWorkloads {
  std::vector<WorkloadSums> kept;  ///< the sum of the others, if there are any, comes last
  std::vector<bool> folded;        ///< by index of the input
  std::size_t series = 0;          ///< lines of `kept`
  std::size_t dropped = 0;         ///< lines that the folded workloads would have had
};

/// Keeps workloads from the front (the oldest, so that a new one moves no counter of another) while
/// their series and those of the rest's sum fit into `max_series`, and those of their pod into its
/// own limit. A workload whose container is
/// called "other" already is merged with the rest.
BudgetedWorkloads apply_budget(std::vector<WorkloadSums> workloads, std::size_t max_series);

}  // namespace ingero::exporting
