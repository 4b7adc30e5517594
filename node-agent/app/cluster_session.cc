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
ConfigMapName config_map_of(const KubernetesOptions& options, const k8s::Credentials& credentials) {
  const auto slash = options.config_map.find('/');
  if (slash != std::string::npos)
    return {options.config_map.substr(0, slash), options.config_map.substr(slash + 1)};
  const bool named = !options.k8s_namespace.empty();
  return {named ? options.k8s_namespace : credentials.default_namespace(), options.config_map};
}

Result<k8s::Credentials> credentials_of(const KubernetesOptions& options) {
  if (options.kubeconfig.empty()) return k8s::Credentials::in_cluster();
  return k8s::Credentials::from_kubeconfig(options.kubeconfig, options.context);
}

}  // namespace

Status begin_with_cluster_settings(LiveConfig& settings, const KubernetesOptions& options) {
  if (options.config_map.empty()) return {};
  auto credentials = credentials_of(options);
  if (!credentials) return fail(credentials.error());
  const ConfigMapName where = config_map_of(options, *credentials);
  k8s::ApiClient client(std::move(*credentials));
  begin_with_config_map(settings, client, where);
  return {};
}

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
  auto credentials = credentials_of(options_);
  if (!credentials) return fail(credentials.error());
  ClusterOptions options;
  options.node = options_.node;
  options.config_map = config_map_of(options_, *credentials);
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
  const ConfigMapName& where = cluster_->options().config_map;
  app::take_config_map(settings_, where, state);
  const ConfigStatus status = settings_.status();
  if (!status.accepted)
    reporter_->config_refused(where.k8s_namespace, where.name, state.uid, status.error);
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
