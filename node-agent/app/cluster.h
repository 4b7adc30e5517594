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

#include "app/workloads.h"
#include "base/clock.h"
#include "k8s/api_client.h"
#include "k8s/informer.h"
#include "policy/decision.h"

namespace ingero::app {

struct ClusterOptions {
  std::string node;  ///< as the API server calls it
  std::string config_namespace;
  std::string config_map;  ///< empty: settings do not come from the cluster
  /// How long decisions wait for policies and namespaces that the API server does not tell.
  std::chrono::nanoseconds patience = std::chrono::seconds(10);
};

/// The ConfigMap that holds the settings.
struct ConfigMapState {
  bool exists = false;
  std::string yaml;  ///< of the key config.yaml
  bool has_key = false;
  std::string uid;
  std::string resource_version;
  bool operator==(const ConfigMapState&) const = default;
};

struct PolicyError {
  std::string name;
  std::string uid;
  std::int64_t generation = 0;
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

  struct NodeFacts {
    std::string uid;
    policy::Labels labels;
  };
  NodeFacts node() const;
  k8s::ApiClient& client() { return client_; }
  const ClusterOptions& options() const { return options_; }

  void stop();

 private:
  Cluster(k8s::Credentials credentials, ClusterOptions options, policy::AgentDefaults defaults,
          Handlers handlers);
  Status watch_all();
  Status watch(std::string what, k8s::InformerOptions options, k8s::InformerHandlers handlers);
  /// Handlers that keep objects by name and call `changed` after each step.
  k8s::InformerHandlers keep(std::map<std::string, nlohmann::json>& objects,
                             std::function<void()> changed);
  bool is_known(const std::string& what) const;
  void read_policies();
  void read_config_map();

  const ClusterOptions options_;
  const Handlers handlers_;
  const std::uint64_t started_ns_ = system_clock_source().monotonic_ns();
  k8s::ApiClient client_;
  k8s::PodTable pods_;

  mutable std::mutex mutex_;
  policy::AgentDefaults defaults_;
  std::map<std::string, nlohmann::json> namespaces_, policies_, nodes_, config_maps_;
  std::vector<policy::TracePolicy> parsed_policies_;
  std::vector<PolicyError> policy_errors_;
  bool policies_changed_ = true, namespaces_changed_ = true;
  std::shared_ptr<const policy::PolicySet> policy_set_;
  std::shared_ptr<const std::map<std::string, policy::Labels>> namespace_labels_;
  std::vector<std::pair<std::string, std::unique_ptr<k8s::Informer>>> informers_;
};

}  // namespace ingero::app
