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

/// What a GpuTraceNode says of policies: a small part of the object, since one agent keeps those of all
/// nodes.
struct NodeView {
  struct Policy {
    std::string name;
    std::int64_t observed_generation = 0, pods = 0, processes = 0;
    bool ready = false;
    std::string problem;  ///< why it is not ready
  };
  struct Untraced {
    std::string policy, k8s_namespace, pod, container, reason, message;
  };
  std::string name, resource_version;
  std::vector<Policy> policies;  ///< each once
  std::vector<Untraced> untraced;
};

/// `object` may hold anything; what is no report says nothing.
NodeView read_node(const nlohmann::json& object);

/// Folds the reports of the nodes into the status of each policy, by its name. `nodes` are those that are
/// there: the caller leaves the others out.
std::map<std::string, nlohmann::json> fold_policy_statuses(
    const std::vector<PolicyToFold>& policies,
    const std::vector<std::shared_ptr<const NodeView>>& nodes, std::uint64_t now_unix_ns);

}  // namespace ingero::report
