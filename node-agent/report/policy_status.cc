// SPDX-License-Identifier: Apache-2.0
#include "report/policy_status.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "report/condition.h"
#include "report/status_text.h"

namespace ingero::report {

namespace {

using nlohmann::json;

constexpr std::size_t kMaxUntraced = 32;
constexpr std::size_t kMaxReasonBytes = 128;
constexpr std::size_t kMaxLabelBytes = 63;

/// What the nodes say of one policy.
struct Sum {
  std::int64_t generation = 0;
  std::int64_t nodes = 0;
  std::int64_t in_force = 0;  ///< nodes that have seen the generation
  std::int64_t not_ready = 0;
  std::int64_t pods = 0;
  std::int64_t processes = 0;
  std::string first_problem;  ///< of the nodes that are not ready
  json untraced = json::array();
};

/// "1 pod", "3 pods".
std::string plural(std::int64_t count, const char* noun, const char* end = "s") {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : end);
}

void add_policy(Sum& sum, const std::string& node, const json& policy) {
  ++sum.nodes;
  sum.pods = std::min(sum.pods + count_at(policy, "pods", kMaxInt32), kMaxInt32);
  sum.processes = std::min(sum.processes + count_at(policy, "processes", kMaxInt32), kMaxInt32);
  const auto observed =
      count_at(policy, "observedGeneration", std::numeric_limits<std::int64_t>::max());
  if (observed >= sum.generation) ++sum.in_force;
  if (flag_at(policy, "ready")) return;
  ++sum.not_ready;
  if (sum.first_problem.empty())
    sum.first_problem = node + ": " + text_at(policy, "message", kMaxMessageBytes);
}

void add_untraced(Sum& sum, const std::string& node, const json& item) {
  const std::string pod = text_at(item, "pod", kMaxNameBytes);
  const std::string reason = text_at(item, "reason", kMaxReasonBytes);
  if (sum.untraced.size() == kMaxUntraced || pod.empty() || reason.empty()) return;
  sum.untraced.push_back({{"node", node},
                          {"namespace", text_at(item, "namespace", kMaxLabelBytes)},
                          {"pod", pod},
                          {"container", text_at(item, "container", kMaxLabelBytes)},
                          {"reason", reason},
                          {"message", text_at(item, "message", kMaxMessageBytes)}});
}

Condition ready_condition(const Sum& sum) {
  const std::string on_nodes = plural(sum.nodes, "node");
  if (sum.nodes == 0) {
    return {ConditionStatus::unknown, "NoNodes", "it selects no node that has an agent",
            sum.generation};
  }
  if (sum.in_force < sum.nodes) {
    return {ConditionStatus::no, "Progressing",
            fmt::format("it is in force on {} of {}", sum.in_force, on_nodes), sum.generation};
  }
  if (sum.not_ready > 0) {
    return {ConditionStatus::no, "NotAllTraced",
            fmt::format("not all it selects is traced on {} of {}; {}", sum.not_ready, on_nodes,
                        sum.first_problem),
            sum.generation};
  }
  if (sum.pods == 0) {
    return {ConditionStatus::yes, "NoPods",
            fmt::format("it selects no running pod on {}", on_nodes), sum.generation};
  }
  if (sum.processes == 0) {
    return {ConditionStatus::yes, "NoProcesses",
            fmt::format("it selects {} on {}; no process of {} maps a GPU library",
                        plural(sum.pods, "pod"), on_nodes, sum.pods == 1 ? "it" : "them"),
            sum.generation};
  }
  return {ConditionStatus::yes, "AllTraced",
          fmt::format("{} traced in the {} that it selects on {}",
                      plural(sum.processes, "process", "es"), plural(sum.pods, "pod"), on_nodes),
          sum.generation};
}

}  // namespace

std::map<std::string, json> fold_policy_statuses(
    const std::vector<PolicyToFold>& policies,
    const std::vector<std::shared_ptr<const json>>& nodes, std::uint64_t now_unix_ns) {
  std::map<std::string, Sum> sums;
  for (const PolicyToFold& policy : policies) sums[policy.name].generation = policy.generation;

  // By name, so that the same reports give the same statuses.
  std::map<std::string, const json*> statuses;
  for (const auto& node : nodes) {
    const std::string name = text_at(object_at(*node, "metadata"), "name", kMaxNameBytes);
    if (!name.empty()) statuses[name] = &object_at(*node, "status");
  }
  for (const auto& [node, status] : statuses) {
    std::set<std::string> counted;  // a report that names a policy twice counts once
    for (const json& policy : array_at(*status, "policies")) {
      const std::string name = text_at(policy, "name", kMaxNameBytes);
      const auto sum = sums.find(name);
      if (sum != sums.end() && counted.insert(name).second) add_policy(sum->second, node, policy);
    }
    for (const json& item : array_at(*status, "untraced")) {
      const auto sum = sums.find(text_at(item, "policy", kMaxNameBytes));
      if (sum != sums.end()) add_untraced(sum->second, node, item);
    }
  }

  std::map<std::string, json> out;
  for (const PolicyToFold& policy : policies) {
    const Sum& sum = sums[policy.name];
    out[policy.name] = {
        {"observedGeneration", sum.generation},
        {"nodes", sum.nodes},
        {"pods", sum.pods},
        {"processes", sum.processes},
        {"ready", fmt::format("{}/{}", sum.in_force, sum.nodes)},
        {"conditions",
         make_ready_conditions(ready_condition(sum), policy.status_before, now_unix_ns)},
        {"untraced", sum.untraced},
    };
  }
  return out;
}

}  // namespace ingero::report
