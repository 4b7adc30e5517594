// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "app/config_map.h"
#include "app/workloads.h"
#include "base/clock.h"
#include "k8s/api_client.h"
#include "k8s/informer.h"
#include "k8s/object_store.h"
#include "policy/decision.h"

namespace ingero::app {

struct ClusterOptions {
  std::string node;          ///< as the API server calls it
  ConfigMapName config_map;  ///< no name: settings do not come from the cluster
  /// How long decisions wait for policies and namespaces that the API server does not tell.
  std::chrono::nanoseconds patience = std::chrono::seconds(10);
};

struct PolicyError {
  std::string name;
  std::string message;
};

/// One kind of objects that the agent watches.
struct WatchState {
  std::string what;
  k8s::InformerStats stats;
};

/// What the agent learns from the API server: its node's pods, namespaces, policies, its node and its
/// settings. Lives through any outage with what was known last. Thread safe.
class Cluster {
 public:
  struct Handlers {
    /// The view may have changed; called from any thread, often.
    std::function<void()> on_change;
    /// Called from one thread, in order, with each state of the ConfigMap, the first one included.
    std::function<void(ConfigMapState)> on_config;
  };

  static Result<std::unique_ptr<Cluster>> start(k8s::Credentials credentials,
                                                ClusterOptions options,
                                                policy::AgentDefaults defaults, Handlers handlers);
  ~Cluster();
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  std::shared_ptr<const ClusterView> view();
  void set_defaults(policy::AgentDefaults defaults);

  /// What keeps the agent from labelling and deciding as it should; empty: nothing.
  std::vector<std::string> not_ready() const;
  /// Troubles that do not make it unready: an API server that no longer answers.
  std::vector<std::string> troubles() const;
  std::vector<WatchState> watches() const;
  std::vector<PolicyError> policy_errors() const;

  k8s::ApiClient& client() { return client_; }
  const ClusterOptions& options() const { return options_; }

  void stop();

 private:
  Cluster(k8s::Credentials credentials, ClusterOptions options, policy::AgentDefaults defaults,
          Handlers handlers);
  Status watch_all();
  Status watch(std::string what, k8s::InformerOptions options, k8s::InformerHandlers handlers);
  k8s::InformerHandlers pod_handlers();
  bool is_known(bool synced) const;
  void tell_config_map() const;

  const ClusterOptions options_;
  const Handlers handlers_;
  const std::uint64_t started_ns_ = system_clock_source().monotonic_ns();
  k8s::ApiClient client_;
  k8s::PodTable pods_;
  k8s::ObjectStore<policy::Labels> namespaces_;
  k8s::ObjectStore<policy::TracePolicy> policies_;
  k8s::ObjectStore<policy::Labels> nodes_;
  k8s::ObjectStore<ConfigMapState> config_maps_;

  mutable std::mutex mutex_;
  policy::AgentDefaults defaults_;
  /// What the policy set below was made of; null: it has to be made.
  std::shared_ptr<const k8s::ObjectSnapshot<policy::TracePolicy>> set_policies_;
  std::shared_ptr<const k8s::ObjectSnapshot<policy::Labels>> set_nodes_;
  std::shared_ptr<const policy::PolicySet> policy_set_;
  std::vector<std::pair<std::string, std::unique_ptr<k8s::Informer>>> informers_;
};

}  // namespace ingero::app
