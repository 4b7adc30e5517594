// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stop_token>
#include <string>
#include <unordered_map>
#include <vector>

#include "app/cluster.h"
#include "app/node_summary.h"
#include "app/orphan_reaper.h"
#include "app/recording_events.h"
#include "k8s/api_client.h"
#include "k8s/event_recorder.h"
#include "k8s/informer.h"
#include "k8s/lease_elector.h"
#include "k8s/object_applier.h"
#include "k8s/object_store.h"
#include "report/policy_status.h"

namespace ingero::app {

struct ReporterOptions {
  std::string node;
  std::string pod;
  std::string k8s_namespace;
  std::string lease;  ///< empty: this agent never folds
  /// The report goes when this ClusterRole goes, that is with the release; empty: with its Node.
  std::string owner_cluster_role;
};

/// Tells the cluster what the agent sees: its own GpuTraceNode, Events, and, while it is the elected
/// one, the status of every policy. Belongs to one thread; never waits for the API server.
class Reporter {
 public:
  static Result<std::unique_ptr<Reporter>> start(k8s::ApiClient& client, ReporterOptions options);
  ~Reporter();
  Reporter(const Reporter&) = delete;
  Reporter& operator=(const Reporter&) = delete;

  /// To be called every few seconds.
  void report(const NodeState& state);
  void config_refused(const std::string& k8s_namespace, const std::string& name,
                      const std::string& uid, const std::string& error);

  bool is_leader() const { return elector_ && elector_->is_leader(); }
  /// For /debug/state. From any thread.
  nlohmann::json state() const;
  void stop();

 private:
  /// What the elected agent watches.
  struct Leadership {
    /// Shared: of ten thousand nodes, snapshots are made each second.
    using Node = std::shared_ptr<const report::NodeView>;
    using Policy = std::shared_ptr<const report::PolicyToFold>;
    k8s::ObjectStore<Node> nodes;
    k8s::ObjectStore<Policy> policies;
    std::unique_ptr<k8s::Informer> node_informer, policy_informer;
    std::unique_ptr<OrphanReaper> reaper;
    /// What the statuses told the applier follow from.
    std::shared_ptr<const k8s::ObjectSnapshot<Node>> folded_nodes;
    std::shared_ptr<const k8s::ObjectSnapshot<Policy>> folded_policies;
    std::size_t folded_living = 0;
    Leadership();
  };
  /// A node's report, and when it was last seen to change.
  struct Seen {
    std::string resource_version;
    std::uint64_t since_ns = 0;
  };

  Reporter(k8s::ApiClient& client, ReporterOptions options);
  void write_node(const report::NodeReport& report);
  Result<nlohmann::json> owner(std::stop_token stop) const;
  Result<std::optional<k8s::AppliedObject>> prerequisite(const std::string& path,
                                                         std::stop_token stop) const;
  void send_events(const report::NodeReport& report, const NodeState& state);
  void lead();
  void fold();
  std::vector<Leadership::Node> living_nodes(const k8s::ObjectSnapshot<Leadership::Node>& nodes);

  k8s::ApiClient& client_;
  const ReporterOptions options_;
  NodeSummary summary_;
  RecordingEvents recording_events_;
  nlohmann::json node_status_;
  std::uint64_t node_written_ns_ = 0;
  std::unordered_map<std::string, Seen> seen_;
  std::unique_ptr<k8s::EventRecorder> events_;
  std::unique_ptr<k8s::ObjectApplier> applier_;
  std::unique_ptr<k8s::LeaseElector> elector_;
  std::unique_ptr<Leadership> leadership_;
};

}  // namespace ingero::app
