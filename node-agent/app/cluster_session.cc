// SPDX-License-Identifier: Apache-2.0
#include "app/cluster_session.h"

#include <spdlog/spdlog.h>

#include <boost/asio/post.hpp>
#include <nlohmann/json.hpp>
#include <utility>

#include "app/choices.h"
#include "app/cluster_state.h"
#include "app/recording_state.h"

namespace ingero::app {
namespace {

using namespace std::chrono_literals;

constexpr auto kReportInterval = 2s;
constexpr std::uint64_t kRoundsWithCalls = 30;
// A thousand pods that come at once are looked at a few times, not a thousand times.
constexpr auto kSettleTime = 20ms;

/// Where the settings are: "namespace/name", or a name in the agent's own namespace.
ClusterOptions cluster_options(const KubernetesOptions& options,
                               const k8s::Credentials& credentials) {
  ClusterOptions chosen;
  chosen.node = options.node;
  const auto slash = options.config_map.find('/');
  const bool has_namespace = slash != std::string::npos;
  chosen.config_map = options.config_map.substr(has_namespace ? slash + 1 : 0);
  if (has_namespace) chosen.config_namespace = options.config_map.substr(0, slash);
  else if (!options.k8s_namespace.empty()) chosen.config_namespace = options.k8s_namespace;
  else chosen.config_namespace = credentials.default_namespace();
  return chosen;
}

}  // namespace

ClusterSession::ClusterSession(boost::asio::io_context& io, Agent& agent, LiveConfig& settings,
                               const KubernetesOptions& options, ClusterHooks hooks)
    : io_(io),
      agent_(agent),
      settings_(settings),
      options_(options),
      hooks_(std::move(hooks)),
      change_timer_(io),
      patience_timer_(io),
      report_timer_(io) {}

Result<std::unique_ptr<ClusterSession>> ClusterSession::start(boost::asio::io_context& io,
                                                              Agent& agent, LiveConfig& settings,
                                                              const KubernetesOptions& options,
                                                              ClusterHooks hooks) {
  std::unique_ptr<ClusterSession> session(
      new ClusterSession(io, agent, settings, options, std::move(hooks)));
  if (auto status = session->join(); !status) return fail(status.error());
  return session;
}

Status ClusterSession::join() {
  auto credentials = options_.kubeconfig.empty()
                         ? k8s::Credentials::in_cluster()
                         : k8s::Credentials::from_kubeconfig(options_.kubeconfig, options_.context);
  if (!credentials) return fail(credentials.error());
  ClusterOptions options = cluster_options(options_, *credentials);
  Cluster::Handlers handlers;
  handlers.on_change = [this] {
    if (!change_pending_.exchange(true)) boost::asio::post(io_, [this] { take_view_soon(); });
  };
  handlers.on_config = [this](ConfigMapState state) {
    boost::asio::post(io_, [this, state = std::move(state)] { take_config_map(state); });
  };
  spdlog::info("Kubernetes: node {}, API server {}", options.node,
               to_string(credentials->endpoint()));
  auto cluster = Cluster::start(std::move(*credentials), std::move(options),
                                policy_defaults(settings_.config()), std::move(handlers));
  if (!cluster) return fail(cluster.error());
  cluster_ = std::move(*cluster);
  take_view();
  // What is not known by then is decided without it.
  patience_timer_.expires_after(cluster_->options().patience + 100ms);
  patience_timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) take_view();
  });
  auto reporter =
      Reporter::start(cluster_->client(), {options_.node, options_.pod, options_.k8s_namespace,
                                           options_.lease, options_.owner_cluster_role});
  if (!reporter) return fail(reporter.error());
  reporter_ = std::move(*reporter);
  report_node();
  return {};
}

void ClusterSession::stop() {
  reporter_->stop();
  cluster_->stop();
}

void ClusterSession::apply(const config::Config& config) {
  cluster_->set_defaults(policy_defaults(config));
  take_view();
}

void ClusterSession::take_view() { agent_.set_cluster(cluster_->view()); }

void ClusterSession::take_view_soon() {
  change_timer_.expires_after(kSettleTime);
  change_timer_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    change_pending_ = false;
    take_view();
  });
}

void ClusterSession::take_config_map(const ConfigMapState& state) {
  const ClusterOptions& options = cluster_->options();
  const std::string source = options.config_namespace + "/" + options.config_map;
  if (!state.exists) {
    settings_.refuse(source, "ConfigMap " + source + " does not exist");
  } else if (!state.has_key) {
    settings_.refuse(source, "ConfigMap " + source + " has no key config.yaml");
  } else {
    static_cast<void>(settings_.take(state.yaml, source, state.resource_version));
  }
  const ConfigStatus status = settings_.status();
  if (!status.accepted)
    reporter_->config_refused(options.config_namespace, options.config_map, state.uid,
                              status.error);
  hooks_.on_settings();
}

void ClusterSession::report_node() {
  // To read all counters costs too much to be done every time.
  const bool with_calls = reports_++ % kRoundsWithCalls == 0;
  const auto snapshot = with_calls ? agent_.snapshot() : agent_.overview();
  reporter_->report({snapshot, with_calls, agent_.containers(), cluster_->view(),
                     cluster_->policy_errors(), settings_.status(), cluster_->not_ready(),
                     options_.pod, std::string(to_string(agent_.cgroup_mount().hierarchy())),
                     hooks_.recordings()});
  report_timer_.expires_after(kReportInterval);
  report_timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) report_node();
  });
}

void ClusterSession::add_state(nlohmann::json& state) const {
  add_cluster_state(*cluster_, agent_.containers(), state);
  state["reports"] = reporter_->state();
  state["recordings"] = recordings_state(hooks_.recordings());
}

}  // namespace ingero::app
