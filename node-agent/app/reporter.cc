// SPDX-License-Identifier: Apache-2.0
#include "app/reporter.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <set>

#include "base/clock.h"

namespace ingero::app {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

constexpr const char* kApiVersion = "ingero.io/v1alpha1";
constexpr const char* kNodesPath = "/apis/ingero.io/v1alpha1/gputracenodes";
constexpr const char* kClusterRolesPath = "/apis/rbac.authorization.k8s.io/v1/clusterroles/";
constexpr const char* kPoliciesPath = "/apis/ingero.io/v1alpha1/gputracepolicies";
// Numbers that grow with every call are written so rarely, that ten thousand nodes make 33 writes a
// second; everything else at once.
constexpr std::chrono::nanoseconds kHeartbeat = 5min;
constexpr std::chrono::nanoseconds kGivenUp = 3 * kHeartbeat;

std::uint64_t number(std::chrono::nanoseconds time) {
  return static_cast<std::uint64_t>(time.count());
}

std::int64_t generation_of(const json& object) {
  const auto metadata = object.find("metadata");
  if (metadata == object.end() || !metadata->is_object()) return 0;
  const auto generation = metadata->find("generation");
  const bool is_number = generation != metadata->end() && generation->is_number_integer();
  return is_number ? generation->get<std::int64_t>() : 0;
}

Result<std::shared_ptr<const report::NodeView>> view_of(const json& object) {
  return std::make_shared<const report::NodeView>(report::read_node(object));
}

Result<std::shared_ptr<const report::PolicyToFold>> policy_of(const json& object) {
  report::PolicyToFold policy;
  policy.name = k8s::text_at(object, {"metadata", "name"});
  policy.generation = generation_of(object);
  if (object.contains("status")) policy.status_before = object["status"];
  return std::make_shared<const report::PolicyToFold>(std::move(policy));
}

std::string status_path(const char* collection, const std::string& name) {
  return fmt::format("{}/{}/status", collection, name);
}

}  // namespace

Reporter::Leadership::Leadership() : nodes(view_of), policies(policy_of) {}

Reporter::Reporter(k8s::ApiClient& client, ReporterOptions options)
    : client_(client),
      options_(std::move(options)),
      recording_events_(
          static_cast<std::int64_t>(system_clock_source().realtime_ns() / number(1s))) {}

Reporter::~Reporter() { stop(); }

Result<std::unique_ptr<Reporter>> Reporter::start(k8s::ApiClient& client, ReporterOptions options) {
  std::unique_ptr<Reporter> reporter(new Reporter(client, std::move(options)));
  const ReporterOptions& chosen = reporter->options_;
  k8s::EventRecorderOptions event_options;
  event_options.node = chosen.node;
  event_options.instance = chosen.pod;
  auto events = k8s::EventRecorder::start(client, event_options);
  if (!events) return fail(events.error());
  reporter->events_ = std::move(*events);
  k8s::ObjectApplierOptions applier_options;
  applier_options.prerequisite = [self = reporter.get()](const std::string& path,
                                                         std::stop_token stop) {
    return self->prerequisite(path, std::move(stop));
  };
  auto applier = k8s::ObjectApplier::start(client, std::move(applier_options));
  if (!applier) return fail(applier.error());
  reporter->applier_ = std::move(*applier);
  if (chosen.lease.empty() || chosen.k8s_namespace.empty()) return reporter;
  k8s::LeaseOptions lease;
  lease.k8s_namespace = chosen.k8s_namespace;
  lease.name = chosen.lease;
  lease.identity = chosen.pod.empty() ? chosen.node : chosen.pod;
  auto elector = k8s::LeaseElector::start(client, client, lease);
  if (!elector) return fail(elector.error());
  reporter->elector_ = std::move(*elector);
  return reporter;
}

void Reporter::stop() {
  leadership_.reset();
  if (elector_) elector_->stop();
  if (applier_) applier_->stop();
  if (events_) events_->stop();
}

// ---- this node -----------------------------------------------------------------------------------

void Reporter::report(const NodeState& state) {
  const report::NodeReport report = summary_.summarize(state);
  write_node(report);
  send_events(report, state);
  lead();
}

/// Whose end is the end of the report. Asked anew each time: what has the name may be another one now.
Result<json> Reporter::owner(std::stop_token stop) const {
  const bool is_node = options_.owner_cluster_role.empty();
  const std::string& name = is_node ? options_.node : options_.owner_cluster_role;
  const std::string path = (is_node ? "/api/v1/nodes/" : kClusterRolesPath) + name;
  const auto object = client_.get_json(path, std::move(stop));
  if (!object) return fail(object.error());
  return json{{"apiVersion", is_node ? "v1" : "rbac.authorization.k8s.io/v1"},
              {"kind", is_node ? "Node" : "ClusterRole"},
              {"name", name},
              {"uid", k8s::text_at(*object, {"metadata", "uid"})}};
}

/// The object of a report; policies are the users' own.
Result<std::optional<k8s::AppliedObject>> Reporter::prerequisite(const std::string& path,
                                                                 std::stop_token stop) const {
  if (!path.starts_with(kNodesPath)) return std::nullopt;
  auto owner = this->owner(std::move(stop));
  if (!owner) return fail(owner.error());
  const json metadata = {{"name", options_.node},
                         {"labels", {{"app.kubernetes.io/managed-by", "ingero"}}},
                         {"ownerReferences", json::array({std::move(*owner)})}};
  return k8s::AppliedObject{
      fmt::format("{}/{}", kNodesPath, options_.node),
      {{"apiVersion", kApiVersion}, {"kind", "GpuTraceNode"}, {"metadata", metadata}}};
}

void Reporter::write_node(const report::NodeReport& report) {
  const std::uint64_t now = system_clock_source().monotonic_ns();
  json status =
      report::build_node_status(report, node_status_, system_clock_source().realtime_ns());
  const bool due = now - node_written_ns_ >= number(kHeartbeat);
  if (!node_status_.is_null() && !due && report::is_same_but_for_counts(node_status_, status))
    return;
  node_status_ = status;
  node_written_ns_ = now;
  applier_->apply(status_path(kNodesPath, options_.node), {{"apiVersion", kApiVersion},
                                                           {"kind", "GpuTraceNode"},
                                                           {"metadata", {{"name", options_.node}}},
                                                           {"status", std::move(status)}});
}

// ---- events --------------------------------------------------------------------------------------

void Reporter::config_refused(const std::string& k8s_namespace, const std::string& name,
                              const std::string& uid, const std::string& error) {
  events_->record({{"v1", "ConfigMap", k8s_namespace, name, uid},
                   k8s::EventType::warning,
                   "ConfigRejected",
                   "the last good settings stay in force: " + error});
}

void Reporter::send_events(const report::NodeReport& report, const NodeState& state) {
  for (const report::UntracedContainer& row : report.untraced) {
    if (row.reason != "AttachFailed") continue;
    std::string uid;
    for (const CoveredContainer& container : state.containers) {
      if (container.pod && container.pod->name == row.pod &&
          container.pod->k8s_namespace == row.k8s_namespace)
        uid = container.pod->uid;
    }
    events_->record({{"v1", "Pod", row.k8s_namespace, row.pod, uid},
                     k8s::EventType::warning,
                     "NotTraced",
                     fmt::format("container {}: {}", row.container, row.message)});
  }
  for (const PolicyError& error : state.policy_errors)
    events_->record({{kApiVersion, "GpuTracePolicy", "", error.name, ""},
                     k8s::EventType::warning,
                     "PolicyInvalid",
                     error.message});
  for (const k8s::Event& event : recording_events_.changes(state.recordings))
    events_->record(event);
}

// ---- all nodes -----------------------------------------------------------------------------------

void Reporter::lead() {
  if (!is_leader()) {
    if (!leadership_) return;
    spdlog::info("another agent writes the status of policies now");
    leadership_.reset();
    applier_->clear();
    node_status_ = nullptr;  // clear() has forgotten it
    seen_.clear();
    return;
  }
  if (!leadership_) {
    spdlog::info("this agent writes the status of policies");
    auto leadership = std::make_unique<Leadership>();
    k8s::InformerOptions nodes, policies;
    nodes.path = kNodesPath;
    policies.path = kPoliciesPath;
    auto node_informer =
        k8s::Informer::start(client_, std::move(nodes), leadership->nodes.handlers());
    auto policy_informer =
        k8s::Informer::start(client_, std::move(policies), leadership->policies.handlers());
    if (!node_informer || !policy_informer) return;
    leadership->node_informer = std::move(*node_informer);
    leadership->policy_informer = std::move(*policy_informer);
    auto reaper = OrphanReaper::start(client_, client_);
    if (!reaper) return;
    leadership->reaper = std::move(*reaper);
    leadership_ = std::move(leadership);
    return;
  }
  fold();
}

/// Without those whose agents have not reported for long: of nodes that are off, say.
std::vector<Reporter::Leadership::Node> Reporter::living_nodes(
    const k8s::ObjectSnapshot<Leadership::Node>& nodes) {
  std::vector<Leadership::Node> living;
  const std::uint64_t now = system_clock_source().monotonic_ns();
  for (const auto& [name, node] : nodes.objects) {
    Seen& seen = seen_[name];
    if (seen.resource_version != node->resource_version) seen = {node->resource_version, now};
    if (now - seen.since_ns < number(kGivenUp)) living.push_back(node);
  }
  std::erase_if(seen_, [&](const auto& entry) { return !nodes.objects.contains(entry.first); });
  std::set<std::string> names;
  for (const auto& [name, node] : nodes.objects) names.insert(name);
  leadership_->reaper->set_reports(names);
  return living;
}

void Reporter::fold() {
  const auto policies = leadership_->policies.snapshot();
  const auto nodes = leadership_->nodes.snapshot();
  if (!policies->synced || !nodes->synced) return;
  const auto living = living_nodes(*nodes);
  if (policies == leadership_->folded_policies && nodes == leadership_->folded_nodes &&
      living.size() == leadership_->folded_living)
    return;
  std::vector<report::PolicyToFold> wanted;
  for (const auto& [name, policy] : policies->objects) wanted.push_back(*policy);
  auto statuses = report::fold_policy_statuses(wanted, living, system_clock_source().realtime_ns());
  for (auto& [name, status] : statuses) {
    applier_->apply(status_path(kPoliciesPath, name), {{"apiVersion", kApiVersion},
                                                       {"kind", "GpuTracePolicy"},
                                                       {"metadata", {{"name", name}}},
                                                       {"status", std::move(status)}});
  }
  leadership_->folded_policies = policies;
  leadership_->folded_nodes = nodes;
  leadership_->folded_living = living.size();
}

json Reporter::state() const {
  const auto applied = applier_->stats();
  const auto events = events_->stats();
  json state = {{"writes", applied.writes},          {"write_failures", applied.failures},
                {"write_error", applied.last_error}, {"events_sent", events.sent},
                {"events_refused", events.refused},  {"event_error", events.last_error}};
  if (elector_) {
    state["leader"] = elector_->holder();
    state["is_leader"] = elector_->is_leader();
    state["lease_error"] = elector_->stats().last_error;
  }
  return state;
}

}  // namespace ingero::app
