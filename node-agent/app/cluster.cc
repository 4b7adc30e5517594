// SPDX-License-Identifier: Apache-2.0
#include "app/cluster.h"

#include <fmt/format.h>

#include <utility>

namespace ingero::app {
namespace {

constexpr const char* kPods = "pods";
constexpr const char* kNamespaces = "namespaces";
constexpr const char* kPolicies = "gputracepolicies";
constexpr const char* kNode = "node";
constexpr const char* kConfigMap = "configmap";
constexpr const char* kPoliciesPath = "/apis/ingero.io/v1alpha1/gputracepolicies";

using nlohmann::json;

Result<policy::Labels> labels_of(const json& object) {
  policy::Labels labels;
  const auto metadata = object.find("metadata");
  if (metadata == object.end() || !metadata->is_object()) return labels;
  const auto found = metadata->find("labels");
  if (found == metadata->end() || !found->is_object()) return labels;
  for (const auto& [key, value] : found->items())
    if (value.is_string()) labels.emplace(key, value.get<std::string>());
  return labels;
}

/// Writes of its status do not make a policy another one.
bool is_same_spec(const policy::TracePolicy& a, const policy::TracePolicy& b) {
  return a.uid == b.uid && a.generation == b.generation;
}

k8s::InformerOptions all_of(std::string path, k8s::DroppedFields dropped) {
  k8s::InformerOptions options;
  options.path = std::move(path);
  options.dropped_fields = std::move(dropped);
  return options;
}

k8s::InformerOptions one_of(std::string path, const std::string& name, k8s::DroppedFields dropped) {
  k8s::InformerOptions options = all_of(std::move(path), std::move(dropped));
  options.field_selector = "metadata.name=" + name;
  return options;
}

}  // namespace

Result<std::unique_ptr<Cluster>> Cluster::start(k8s::Credentials credentials,
                                                ClusterOptions options,
                                                policy::AgentDefaults defaults, Handlers handlers) {
  std::unique_ptr<Cluster> cluster(
      new Cluster(std::move(credentials), std::move(options), defaults, std::move(handlers)));
  if (auto status = cluster->watch_all(); !status) return fail(status.error());
  return cluster;
}

Cluster::Cluster(k8s::Credentials credentials, ClusterOptions options,
                 policy::AgentDefaults defaults, Handlers handlers)
    : options_(std::move(options)),
      handlers_(std::move(handlers)),
      client_(std::move(credentials)),
      namespaces_(labels_of, handlers_.on_change),
      policies_(policy::parse_policy, handlers_.on_change, is_same_spec),
      nodes_(labels_of, handlers_.on_change),
      config_maps_(parse_config_map, [this] { tell_config_map(); }),
      defaults_(defaults) {}

Cluster::~Cluster() { stop(); }

void Cluster::stop() {
  for (auto& [what, informer] : informers_) informer->stop();
}

k8s::InformerHandlers Cluster::pod_handlers() {
  auto pods = k8s::make_pod_handlers(pods_);
  const auto changed = handlers_.on_change;
  return {[keep = pods.on_snapshot, changed](std::vector<json> objects) {
            keep(std::move(objects));
            changed();
          },
          [keep = pods.on_change, changed](k8s::ChangeType type, json object) {
            keep(type, std::move(object));
            changed();
          }};
}

Status Cluster::watch_all() {
  if (auto status = watch(kPods, k8s::make_pod_informer_options(options_.node), pod_handlers());
      !status)
    return status;
  if (auto status = watch(kNamespaces, all_of("/api/v1/namespaces", {"spec", "status"}),
                          namespaces_.handlers());
      !status)
    return status;
  if (auto status = watch(kPolicies, all_of(kPoliciesPath, {"status"}), policies_.handlers());
      !status)
    return status;
  if (auto status = watch(kNode, one_of("/api/v1/nodes", options_.node, {"spec", "status"}),
                          nodes_.handlers());
      !status)
    return status;
  if (options_.config_map.name.empty()) return {};
  return watch(
      kConfigMap,
      one_of(config_maps_path(options_.config_map), options_.config_map.name, {"binaryData"}),
      config_maps_.handlers());
}

Status Cluster::watch(std::string what, k8s::InformerOptions options,
                      k8s::InformerHandlers handlers) {
  auto informer = k8s::Informer::start(client_, std::move(options), std::move(handlers));
  if (!informer) return fail(informer.error());
  const std::lock_guard lock(mutex_);
  informers_.emplace_back(std::move(what), std::move(*informer));
  return {};
}

void Cluster::tell_config_map() const {
  if (!handlers_.on_config) return;
  const auto snapshot = config_maps_.snapshot();
  const auto& found = snapshot->objects;
  handlers_.on_config(found.empty() ? ConfigMapState{} : found.begin()->second);
}

void Cluster::set_defaults(policy::AgentDefaults defaults) {
  const std::lock_guard lock(mutex_);
  if (!(defaults == defaults_)) set_policies_.reset();
  defaults_ = defaults;
}

/// Whether there was a list, or it was waited for long enough.
bool Cluster::is_known(bool synced) const {
  const auto waited = system_clock_source().monotonic_ns() - started_ns_;
  return synced || waited >= static_cast<std::uint64_t>(options_.patience.count());
}

std::shared_ptr<const ClusterView> Cluster::view() {
  auto view = std::make_shared<ClusterView>();
  view->pods = pods_.snapshot();
  const auto namespaces = namespaces_.snapshot();
  const auto policies = policies_.snapshot();
  const auto nodes = nodes_.snapshot();
  if (is_known(namespaces->synced)) {
    // The labels are a part of the store's snapshot, which they keep alive.
    view->namespaces = {namespaces, &namespaces->objects};
  }
  const std::lock_guard lock(mutex_);
  for (const auto& [name, informer] : informers_)
    if (name == kPods) view->pods_synced = informer->stats().synced;
  const bool changed = policies != set_policies_ || nodes != set_nodes_;
  if (changed && is_known(policies->synced) && is_known(nodes->synced)) {
    std::vector<policy::TracePolicy> all;
    for (const auto& [name, one] : policies->objects) all.push_back(one);
    const auto node = nodes->objects.find(options_.node);
    const policy::Labels labels = node == nodes->objects.end() ? policy::Labels{} : node->second;
    policy_set_ = std::make_shared<const policy::PolicySet>(std::move(all), labels, defaults_);
    set_policies_ = policies;
    set_nodes_ = nodes;
  }
  view->policies = policy_set_;
  return view;
}

std::vector<WatchState> Cluster::watches() const {
  const std::lock_guard lock(mutex_);
  std::vector<WatchState> states;
  for (const auto& [what, informer] : informers_) states.push_back({what, informer->stats()});
  return states;
}

std::vector<std::string> Cluster::not_ready() const {
  std::vector<std::string> reasons;
  for (const WatchState& watch : watches()) {
    if (watch.stats.synced) continue;
    reasons.push_back(fmt::format("{} not known yet{}{}", watch.what,
                                  watch.stats.last_error.empty() ? "" : ": ",
                                  watch.stats.last_error));
  }
  return reasons;
}

std::vector<std::string> Cluster::troubles() const {
  std::vector<std::string> reasons;
  for (const WatchState& watch : watches()) {
    if (watch.stats.synced && !watch.stats.last_error.empty())
      reasons.push_back(fmt::format("{}: {}", watch.what, watch.stats.last_error));
  }
  return reasons;
}

std::vector<PolicyError> Cluster::policy_errors() const {
  std::vector<PolicyError> errors;
  for (const auto& [name, error] : policies_.snapshot()->errors)
    errors.push_back({name, error.message()});
  return errors;
}

}  // namespace ingero::app
