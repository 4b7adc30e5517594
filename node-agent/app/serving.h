// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "app/agent.h"
#include "app/cluster_session.h"
#include "app/heartbeat.h"
#include "app/live_config.h"
#include "app/recordings.h"
#include "base/listen_address.h"
#include "export/http_server.h"
#include "export/prometheus_collectable.h"

namespace ingero::app {

/// What the pages tell about; must outlive the serving.
struct ServingSources {
  Agent& agent;
  const LiveConfig& settings;
  const Recordings& recordings;
  const Heartbeat& heartbeat;
  const ClusterSession* cluster = nullptr;  ///< null outside of a cluster
};

struct ServingOptions {
  ListenAddress address;
  bool follow_settings = false;  ///< move to where the settings say, when they change
  bool tell_address = false;     ///< in the log
};

/// The agent's pages: /metrics, /readyz and /debug/state. Belongs to one thread; the server's threads
/// only read.
class Serving {
 public:
  /// Serves when it returns. An error: nobody can listen there.
  static Result<std::unique_ptr<Serving>> start(ServingSources sources, ServingOptions options);

  /// Serves where these settings say, if it follows them. An error: it stays where it is. Before they
  /// are in force.
  Status follow(const config::Config& config);
  void set_limits(const config::Config& config);
  void stop() { server_->stop(); }

 private:
  Serving(ServingSources sources, ServingOptions options);
  exporting::CollectableOptions collectable_options() const;
  Result<std::unique_ptr<exporting::HttpServer>> listen(const ListenAddress& address);
  exporting::Readiness liveness() const;
  exporting::Readiness readiness() const;
  exporting::AgentStatus agent_status() const;
  nlohmann::json extra_state() const;

  const ServingSources sources_;
  const ServingOptions options_;
  std::unique_ptr<exporting::PrometheusCollectable> collectable_;
  std::unique_ptr<exporting::HttpServer> server_;  ///< last: its threads read the rest
};

}  // namespace ingero::app
