// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace ingero::report {

/// A policy whose status is to be written.
struct PolicyToFold {
  std::string name;
  std::int64_t generation = 0;
  nlohmann::json status_before;  ///< as the API server has it; null: none
};

/// Folds the reports of the nodes into the status of each policy, by its name. `nodes` are
/// GpuTraceNode objects, of nodes that are there: the caller leaves the others out. They may hold
/// anything.
std::map<std::string, nlohmann::json> fold_policy_statuses(
    const std::vector<PolicyToFold>& policies,
    const std::vector<std::shared_ptr<const nlohmann::json>>& nodes, std::uint64_t now_unix_ns);

}  // namespace ingero::report
