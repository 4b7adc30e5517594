// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "app/agent.h"
#include "app/cluster.h"
#include "app/live_config.h"
#include "app/pod_recordings.h"
#include "app/reporter.h"
#include "app/trace_options.h"

namespace ingero::app {

/// Before the agent is made: the settings of the ConfigMap as they are now, if it can be read. An error:
/// there are no credentials.
Status begin_with_cluster_settings(LiveConfig& settings, const KubernetesOptions& options);

/// What a session asks and tells beside the agent and the settings.
struct ClusterHooks {
  std::function<std::vector<PodRecordingStatus>()> recordings;  ///< asked from any thread
  std::function<void()> on_settings;  ///< the settings are known, or refused
};

/// The agent as a part of a cluster: what the API server tells goes to the agent and the settings, what
/// the agent sees goes to the API server. Belongs to the io_context's thread; cluster() and add_state()
/// may be used from any.
class ClusterSession {
 public:
  /// `agent` and `settings` must outlive the session. An error: there are no credentials.
  static Result<std::unique_ptr<ClusterSession>> start(boost::asio::io_context& io, Agent& agent,
                                                       LiveConfig& settings,
                                                       const KubernetesOptions& options,
                                                       ClusterHooks hooks);

  Cluster& cluster() const { return *cluster_; }
  /// Takes over what settings say where no policy does.
  void apply(const config::Config& config);
  /// For /debug/state.
  void add_state(nlohmann::json& state) const;
  void stop();

 private:
  ClusterSession(boost::asio::io_context& io, Agent& agent, LiveConfig& settings,
                 const KubernetesOptions& options, ClusterHooks hooks);
  Status join();
  void take_view();
  void take_view_soon();
  void take_config_map(const ConfigMapState& state);
  void report_node();

  boost::asio::io_context& io_;
  Agent& agent_;
  LiveConfig& settings_;
  const KubernetesOptions options_;
  const ClusterHooks hooks_;
  boost::asio::steady_timer change_timer_, patience_timer_, report_timer_;
  std::atomic<bool> change_pending_ = false;
  std::unique_ptr<Cluster> cluster_;
  std::unique_ptr<Reporter> reporter_;
  std::uint64_t reports_ = 0;
};

}  // namespace ingero::app
