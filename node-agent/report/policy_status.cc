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

NodeView::Policy read_policy(const json& item) {
  NodeView::Policy policy;
  policy.name = text_at(item, "name", kMaxNameBytes);
  policy.observed_generation =
      count_at(item, "observedGeneration", std::numeric_limits<std::int64_t>::max());
  policy.pods = count_at(item, "pods", kMaxInt32);
  policy.processes = count_at(item, "processes", kMaxInt32);
  policy.ready = flag_at(item, "ready");
  if (!policy.ready) policy.problem = text_at(item, "message", kMaxMessageBytes);
  return policy;
}

NodeView::Untraced read_untraced(const json& item) {
  NodeView::Untraced untraced;
  untraced.policy = text_at(item, "policy", kMaxNameBytes);
  untraced.k8s_namespace = text_at(item, "namespace", kMaxLabelBytes);
  untraced.pod = text_at(item, "pod", kMaxNameBytes);
  untraced.container = text_at(item, "container", kMaxLabelBytes);
  untraced.reason = text_at(item, "reason", kMaxReasonBytes);
  untraced.message = text_at(item, "message", kMaxMessageBytes);
  return untraced;
}

void add_policy(Sum& sum, const std::string& node, const NodeView::Policy& policy) {
  ++sum.nodes;
  sum.pods = std::min(sum.pods + policy.pods, kMaxInt32);
  sum.processes = std::min(sum.processes + policy.processes, kMaxInt32);
  if (policy.observed_generation >= sum.generation) ++sum.in_force;
  if (policy.ready) return;
  ++sum.not_ready;
  if (sum.first_problem.empty()) sum.first_problem = node + ": " + policy.problem;
}

void add_untraced(Sum& sum, const std::string& node, const NodeView::Untraced& item) {
  if (sum.untraced.size() == kMaxUntraced) return;
  sum.untraced.push_back({{"node", node},
                          {"namespace", item.k8s_namespace},
                          {"pod", item.pod},
                          {"container", item.container},
                          {"reason", item.reason},
                          {"message", item.message}});
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

NodeView read_node(const json& object) {
  NodeView node;
  node.name = text_at(object_at(object, "metadata"), "name", kMaxNameBytes);
  node.resource_version = text_at(object_at(object, "metadata"), "resourceVersion", kMaxNameBytes);
  std::set<std::string> named;  // a report that names a policy twice counts once
  for (const json& item : array_at(object_at(object, "status"), "policies")) {
    NodeView::Policy policy = read_policy(item);
    if (!policy.name.empty() && named.insert(policy.name).second)
      node.policies.push_back(std::move(policy));
  }
  std::map<std::string, std::size_t> counts;
  for (const json& item : array_at(object_at(object, "status"), "untraced")) {
    NodeView::Untraced untraced = read_untraced(item);
    const bool says = !untraced.pod.empty() && !untraced.reason.empty();
    if (says && counts[untraced.policy]++ < kMaxUntraced)
      node.untraced.push_back(std::move(untraced));
  }
  return node;
}

std::map<std::string, json> fold_policy_statuses(
    const std::vector<PolicyToFold>& policies,
    const std::vector<std::shared_ptr<const NodeView>>& nodes, std::uint64_t now_unix_ns) {
  std::map<std::string, Sum> sums;
  for (const PolicyToFold& policy : policies) sums[policy.name].generation = policy.generation;

  // By name, so that the same reports give the same statuses.
  std::map<std::string, const NodeView*> views;
  for (const auto& node : nodes)
    if (!node->name.empty()) views[node->name] = node.get();
  for (const auto& [name, node] : views) {
    for (const NodeView::Policy& policy : node->policies)
      if (const auto sum = sums.find(policy.name); sum != sums.end())
        add_policy(sum->second, name, policy);
    for (const NodeView::Untraced& item : node->untraced)
      if (const auto sum = sums.find(item.policy); sum != sums.end())
        add_untraced(sum->second, name, item);
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
