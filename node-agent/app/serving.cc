// SPDX-License-Identifier: Apache-2.0
#include "app/serving.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "app/pod_recordings.h"
#include "app/recording_state.h"
#include "app/version.h"
#include "export/debug_state.h"

namespace ingero::app {
namespace {

using namespace std::chrono_literals;

exporting::DurationEnds duration_ends(const config::Config& config) {
  if (config.duration_buckets.empty()) return exporting::kAllDurationEnds;
  exporting::DurationEnds ends = 0;
  for (std::size_t i = 0; i < exporting::kDurationEnds; ++i) {
    const std::chrono::nanoseconds end = std::chrono::microseconds(std::int64_t{1} << i);
    const auto& wanted = config.duration_buckets;
    if (std::find(wanted.begin(), wanted.end(), end) != wanted.end()) ends |= 1U << i;
  }
  return ends;
}

/// How each container's libraries keep ranks in their communicators, and how often that was compared.
nlohmann::json layouts_state(const Agent& agent) {
  nlohmann::json rows = nlohmann::json::array();
  for (const collect::LayoutState& layout : agent.layouts()) {
    const auto cgroup = static_cast<model::CgroupId>(layout.cgroup);
    rows.push_back({{"container", agent.workload_of(cgroup).container},
                    {"library", layout.library},
                    {"rank_offset", layout.rank_offset},
                    {"source", layout.rank_offset == 0 ? "unknown"
                               : layout.found          ? "found"
                                                       : "release"},
                    {"samples", layout.samples},
                    {"verified", layout.verified},
                    {"mismatches", layout.mismatches}});
  }
  return rows;
}

}  // namespace

Result<std::unique_ptr<Serving>> Serving::start(ServingSources sources, ServingOptions options) {
  std::unique_ptr<Serving> serving(new Serving(sources, std::move(options)));
  auto server = serving->listen(serving->options_.address);
  if (!server) return fail(server.error());
  serving->server_ = std::move(*server);
  return serving;
}

Serving::Serving(ServingSources sources, ServingOptions options)
    : sources_(sources), options_(std::move(options)) {
  collectable_ = std::make_unique<exporting::PrometheusCollectable>(
      collectable_options(), [this] { return sources_.agent.snapshot(); },
      [this](model::CgroupId cgroup) { return sources_.agent.workload_of(cgroup); });
}

exporting::CollectableOptions Serving::collectable_options() const {
  const config::Config config = sources_.settings.config();
  exporting::CollectableOptions options;
  options.node = config.node_name.empty() && sources_.cluster
                     ? sources_.cluster->cluster().options().node
                     : config.node_name;
  options.max_series = config.max_series;
  options.duration_ends = duration_ends(config);
  options.version = kVersion;
  options.revision = kRevision;
  options.status = [this] { return agent_status(); };
  return options;
}

Status Serving::follow(const config::Config& config) {
  const bool moves = options_.follow_settings &&
                     !(config.listen_address == sources_.settings.config().listen_address);
  if (!moves) return {};
  auto server = listen(config.listen_address);
  if (!server) return fail(server.error());
  server_->stop();
  server_ = std::move(*server);
  return {};
}

void Serving::set_limits(const config::Config& config) {
  collectable_->set_limits(config.max_series, duration_ends(config));
}

Result<std::unique_ptr<exporting::HttpServer>> Serving::listen(const ListenAddress& address) {
  exporting::HttpHandlers handlers;
  handlers.metrics = [this] { return exporting::metrics_text(*collectable_); };
  handlers.liveness = [this] { return liveness(); };
  handlers.readiness = [this] { return readiness(); };
  handlers.debug_state = [this] {
    const auto lookup = [this](model::CgroupId cgroup) {
      return sources_.agent.workload_of(cgroup);
    };
    return exporting::debug_state_text(*sources_.agent.snapshot(), lookup, extra_state());
  };
  exporting::HttpOptions http;
  http.host = address.host;
  http.port = address.port;
  auto server = exporting::HttpServer::create(std::move(http), std::move(handlers));
  if (server && options_.tell_address)
    spdlog::info("serving /metrics on {}",
                 to_string(ListenAddress{address.host, (*server)->port()}));
  return server;
}

exporting::Readiness Serving::liveness() const {
  if (!sources_.heartbeat.has_stopped()) return {true, "ok"};
  return {false,
          fmt::format(
              "the main loop has not come round for {} s",
              std::chrono::duration_cast<std::chrono::seconds>(sources_.heartbeat.age()).count())};
}

exporting::Readiness Serving::readiness() const {
  std::string text;
  const auto add = [&](const std::string& reason) { text += (text.empty() ? "" : "; ") + reason; };
  const auto missing =
      sources_.cluster ? sources_.cluster->cluster().not_ready() : std::vector<std::string>{};
  for (const std::string& reason : missing) add(reason);
  if (!missing.empty()) return {false, "not ready: " + text};
  if (sources_.cluster)
    for (const std::string& trouble : sources_.cluster->cluster().troubles()) add(trouble);
  const ConfigStatus config = sources_.settings.status();
  if (!config.accepted) add("settings refused: " + config.error);
  // The kubelet asks again and again: the counters are not read for it.
  const auto waiting =
      exporting::waiting_for(*sources_.agent.overview(), sources_.agent.has_counted());
  if (!waiting.empty()) add("waiting: " + waiting.front());
  return {true, text.empty() ? "ready" : "ready; " + text};
}

exporting::AgentStatus Serving::agent_status() const {
  exporting::AgentStatus status;
  status.config_accepted = sources_.settings.status().accepted;
  if (!sources_.cluster) return status;
  status.ready = sources_.cluster->cluster().not_ready().empty();
  status.recordings =
      count_recordings(sources_.recordings.pods()->status(), sources_.recordings.pods()->totals());
  if (const auto policies = sources_.cluster->cluster().view()->policies) {
    for (const auto& entry : policies->entries())
      if (entry.selects_node) status.policies.emplace_back(entry.policy.name, true);
  }
  for (const PolicyError& error : sources_.cluster->cluster().policy_errors())
    status.policies.emplace_back(error.name, false);
  return status;
}

nlohmann::json Serving::extra_state() const {
  nlohmann::json trials = nlohmann::json::array();
  for (const attach::MethodTrial& trial : sources_.agent.trials())
    trials.push_back(
        {{"method", to_string(trial.method)}, {"works", trial.works}, {"detail", trial.detail}});
  const ConfigStatus config = sources_.settings.status();
  nlohmann::json state = {{"version", kVersion},
                          {"attach_methods_tried", std::move(trials)},
                          {"new_mappings_noticed_by", sources_.agent.watch_text()},
                          {"config", config::to_yaml(sources_.settings.config())},
                          {"config_status",
                           {{"accepted", config.accepted},
                            {"error", config.error},
                            {"source", config.source},
                            {"version", config.version},
                            {"waiting_for_restart", config.waiting_for_restart}}}};
  state["communicator_layouts"] = layouts_state(sources_.agent);
  if (sources_.cluster) sources_.cluster->add_state(state);
  return state;
}

}  // namespace ingero::app
