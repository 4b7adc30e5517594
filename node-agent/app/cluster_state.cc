// SPDX-License-Identifier: Apache-2.0
#include "app/cluster_state.h"

#include <nlohmann/json.hpp>

#include "base/text.h"

namespace ingero::app {
namespace {

using nlohmann::json;

json watch_state(const WatchState& watch) {
  return {{"what", watch.what},
          {"synced", watch.stats.synced},
          {"lists", watch.stats.lists},
          {"watches", watch.stats.watches},
          {"changes", watch.stats.changes},
          {"expired", watch.stats.expired},
          {"failures", watch.stats.failures},
          {"last_error", escape_terminal(watch.stats.last_error)}};
}

json container_state(const CoveredContainer& container) {
  json row = {{"cgroup", model::to_number(container.cgroup)},
              {"container", escape_terminal(container.container)},
              {"kind", container.kind},
              {"state", container.state},
              {"reason", escape_terminal(container.reason)}};
  if (container.pod) {
    row["namespace"] = container.pod->k8s_namespace;
    row["pod"] = container.pod->name;
    row["pod_uid"] = container.pod->uid;
  }
  if (container.decision) row["policies"] = container.decision->policies;
  return row;
}

}  // namespace

void add_cluster_state(Cluster& cluster, const std::vector<CoveredContainer>& containers,
                       nlohmann::json& state) {
  json watches = json::array(), policies = json::array(), rows = json::array();
  for (const WatchState& watch : cluster.watches()) watches.push_back(watch_state(watch));
  const auto view = cluster.view();
  if (view->policies) {
    for (const auto& entry : view->policies->entries())
      policies.push_back({{"name", entry.policy.name},
                          {"generation", entry.policy.generation},
                          {"selects_node", entry.selects_node}});
  }
  for (const PolicyError& error : cluster.policy_errors())
    policies.push_back({{"name", error.name}, {"error", escape_terminal(error.message)}});
  for (const CoveredContainer& container : containers) rows.push_back(container_state(container));
  state["node"] = cluster.options().node;
  state["watches"] = std::move(watches);
  state["policies"] = std::move(policies);
  state["pods_known"] = view->pods->pods().size();
  state["pods"] = std::move(rows);
}

}  // namespace ingero::app
