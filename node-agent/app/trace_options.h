// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/recording_session.h"
#include "base/listen_address.h"
#include "config/config.h"

namespace ingero::app {

/// How to reach the API server, and as whom.
struct KubernetesOptions {
  bool enabled = false;    ///< asked for, or found to run in a pod
  std::string kubeconfig;  ///< empty: the service account of the agent's pod
  std::string context;
  std::string node;  ///< the node's name for the API server
  std::string pod;   ///< the agent's own
  std::string k8s_namespace;
  std::string config_map;          ///< namespace/name or name; empty: none
  std::string lease;               ///< name; empty: the agent never writes the status of policies
  std::string owner_cluster_role;  ///< the node's report goes with it; empty: with the node
};

/// How `ingero trace` and `ingero agent` run. The configuration file's values, overridden by flags.
struct TraceOptions {
  config::Config config;
  std::string config_file;  ///< followed while the agent runs; empty: none
  /// Flags that win over settings of a file or ConfigMap.
  std::function<Status(config::Config&)> overrides;
  bool follow_listen_address = false;  ///< serve where the settings say, not at a flag's address
  KubernetesOptions kubernetes;
  std::optional<ListenAddress> serve;  ///< nullopt: no HTTP server
  bool keep_ended = true;              ///< containers that have ended are in the summary
  bool show_table = true;              ///< live table, or plain lines without a terminal
  bool print_calls = false;
  bool json = false;
  std::optional<std::uint32_t> pid;
  std::string cgroup;
  std::optional<std::chrono::nanoseconds> duration;
  RecordingOptions recording;
  std::vector<std::pair<std::string, std::string>> tallies;  ///< container label, tally file
};

/// Runs until the duration is over or a signal comes. Returns the exit status: 0; 1 when tallies were
/// given and differ. Errors: what keeps it from starting.
Result<int> run_trace(TraceOptions options);

}  // namespace ingero::app
