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
constexpr const char* kConfigKey = "config.yaml";

policy::Labels labels_of(const nlohmann::json& object) {
  policy::Labels labels;
  const auto metadata = object.find("metadata");
  if (metadata == object.end() || !metadata->is_object()) return labels;
  const auto found = metadata->find("labels");
  if (found == metadata->end() || !found->is_object()) return labels;
  for (const auto& [key, value] : found->items())
    if (value.is_string()) labels.emplace(key, value.get<std::string>());
  return labels;
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
      defaults_(defaults) {}

Cluster::~Cluster() { stop(); }

void Cluster::stop() {
  for (auto& [what, informer] : informers_) informer->stop();
}

Status Cluster::watch_all() {
  auto pods = k8s::make_pod_handlers(pods_);
  const auto changed = handlers_.on_change;
  k8s::InformerHandlers pod_handlers{
      [keep = pods.on_snapshot, changed](std::vector<nlohmann::json> objects) {
        keep(std::move(objects));
        changed();
      },
      [keep = pods.on_change, changed](k8s::ChangeType type, nlohmann::json object) {
        keep(type, std::move(object));
        changed();
      }};
  if (auto status =
          watch(kPods, k8s::make_pod_informer_options(options_.node), std::move(pod_handlers));
      !status)
    return status;
  if (auto status = watch(kNamespaces, all_of("/api/v1/namespaces", {"spec", "status"}),
                          keep(namespaces_, [this] { namespaces_changed_ = true; }));
      !status)
    return status;
  if (auto status = watch(kPolicies, all_of(kPoliciesPath, {"status"}),
                          keep(policies_, [this] { read_policies(); }));
      !status)
    return status;
  if (auto status = watch(kNode, one_of("/api/v1/nodes", options_.node, {"spec", "status"}),
                          keep(nodes_, [this] { policies_changed_ = true; }));
      !status)
    return status;
  if (options_.config_map.empty()) return {};
  return watch(kConfigMap,
               one_of(fmt::format("/api/v1/namespaces/{}/configmaps", options_.config_namespace),
                      options_.config_map, {"binaryData"}),
               keep(config_maps_, [this] { read_config_map(); }));
}

Status Cluster::watch(std::string what, k8s::InformerOptions options,
                      k8s::InformerHandlers handlers) {
  auto informer = k8s::Informer::start(client_, std::move(options), std::move(handlers));
  if (!informer) return fail(informer.error());
  const std::lock_guard lock(mutex_);
  informers_.emplace_back(std::move(what), std::move(*informer));
  return {};
}

k8s::InformerHandlers Cluster::keep(std::map<std::string, nlohmann::json>& objects,
                                    std::function<void()> changed) {
  return {[this, &objects, changed](std::vector<nlohmann::json> all) {
            {
              const std::lock_guard lock(mutex_);
              objects.clear();
              for (nlohmann::json& object : all) {
                std::string name = k8s::text_at(object, {"metadata", "name"});
                objects.insert_or_assign(std::move(name), std::move(object));
              }
              changed();
            }
            handlers_.on_change();
          },
          [this, &objects, changed](k8s::ChangeType type, nlohmann::json object) {
            {
              const std::lock_guard lock(mutex_);
              std::string name = k8s::text_at(object, {"metadata", "name"});
              if (type == k8s::ChangeType::deleted) objects.erase(name);
              else objects.insert_or_assign(std::move(name), std::move(object));
              changed();
            }
            handlers_.on_change();
          }};
}

/// A policy that cannot be read is left out and reported; the others hold. The mutex is held.
void Cluster::read_policies() {
  parsed_policies_.clear();
  policy_errors_.clear();
  for (const auto& [name, object] : policies_) {
    auto parsed = policy::parse_policy(object);
    if (parsed) {
      parsed_policies_.push_back(std::move(*parsed));
      continue;
    }
    policy_errors_.push_back(
        {name, k8s::text_at(object, {"metadata", "uid"}), 0, parsed.error().message()});
  }
  policies_changed_ = true;
}

void Cluster::read_config_map() {
  ConfigMapState state;
  const auto found = config_maps_.find(options_.config_map);
  if (found != config_maps_.end()) {
    state.exists = true;
    state.uid = k8s::text_at(found->second, {"metadata", "uid"});
    state.resource_version = k8s::text_at(found->second, {"metadata", "resourceVersion"});
    const auto data = found->second.find("data");
    if (data != found->second.end() && data->is_object() && data->contains(kConfigKey) &&
        data->at(kConfigKey).is_string()) {
      state.has_key = true;
      state.yaml = data->at(kConfigKey).get<std::string>();
    }
  }
  if (handlers_.on_config) handlers_.on_config(std::move(state));
}

void Cluster::set_defaults(policy::AgentDefaults defaults) {
  const std::lock_guard lock(mutex_);
  policies_changed_ = policies_changed_ || !(defaults == defaults_);
  defaults_ = defaults;
}

/// Whether there was a list of these objects, or it was waited for long enough. The mutex is held.
bool Cluster::is_known(const std::string& what) const {
  for (const auto& [name, informer] : informers_) {
    if (name == what && informer->stats().synced) return true;
  }
  const auto waited = system_clock_source().monotonic_ns() - started_ns_;
  return waited >= static_cast<std::uint64_t>(options_.patience.count());
}

std::shared_ptr<const ClusterView> Cluster::view() {
  auto view = std::make_shared<ClusterView>();
  view->pods = pods_.snapshot();
  const std::lock_guard lock(mutex_);
  for (const auto& [name, informer] : informers_)
    if (name == kPods) view->pods_synced = informer->stats().synced;
  if (policies_changed_ && is_known(kPolicies) && is_known(kNode)) {
    policy::Labels node_labels;
    if (const auto node = nodes_.find(options_.node); node != nodes_.end())
      node_labels = labels_of(node->second);
    policy_set_ =
        std::make_shared<const policy::PolicySet>(parsed_policies_, node_labels, defaults_);
    policies_changed_ = false;
  }
  if (namespaces_changed_ && is_known(kNamespaces)) {
    auto labels = std::make_shared<std::map<std::string, policy::Labels>>();
    for (const auto& [name, object] : namespaces_) labels->emplace(name, labels_of(object));
    namespace_labels_ = std::move(labels);
    namespaces_changed_ = false;
  }
  view->policies = policy_set_;
  view->namespaces = namespace_labels_;
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
  const std::lock_guard lock(mutex_);
  return policy_errors_;
}

Cluster::NodeFacts Cluster::node() const {
  const std::lock_guard lock(mutex_);
  const auto found = nodes_.find(options_.node);
  if (found == nodes_.end()) return {};
  return {k8s::text_at(found->second, {"metadata", "uid"}), labels_of(found->second)};
}

}  // namespace ingero::app
