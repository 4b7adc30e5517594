// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "app/cluster.h"
#include "app/live_config.h"
#include "app/pod_recordings.h"
#include "app/workloads.h"
#include "model/snapshot.h"
#include "report/node_report.h"

namespace ingero::app {

/// All that a node's report is made of.
struct NodeState {
  std::shared_ptr<const model::Snapshot> snapshot;  ///< never null
  bool with_calls = true;  ///< false: the snapshot has none, the totals of the last one are told
  std::vector<CoveredContainer> containers;
  std::shared_ptr<const ClusterView> view;  ///< never null
  std::vector<PolicyError> policy_errors;
  ConfigStatus config;
  std::vector<std::string> not_ready;
  std::string agent_pod;
  std::string cgroup_hierarchy;
  std::vector<PodRecordingStatus> recordings;
};

/// Makes the node's report. Keeps what is costly to find out, which policy selects which pod, as long as
/// neither changes.
class NodeSummary {
 public:
  report::NodeReport summarize(const NodeState& state);

 private:
  struct Selected {
    policy::TracePolicy policy;
    std::vector<std::shared_ptr<const k8s::PodInfo>> pods;  ///< running ones
  };

  void select(const ClusterView& view);

  std::shared_ptr<const k8s::PodSnapshot> pods_;
  std::shared_ptr<const policy::PolicySet> policies_;
  std::shared_ptr<const std::map<std::string, policy::Labels>> namespaces_;
  std::vector<Selected> selected_;
  std::uint64_t calls_ = 0, series_ = 0;
};

}  // namespace ingero::app
