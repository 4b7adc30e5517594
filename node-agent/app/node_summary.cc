// SPDX-License-Identifier: Apache-2.0
#include "app/node_summary.h"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <algorithm>
#include <map>
#include <set>

#include "app/version.h"

namespace ingero::app {
namespace {

using Containers = std::vector<const CoveredContainer*>;

/// By the uid of the pod.
std::map<std::string, Containers> by_pod(const std::vector<CoveredContainer>& containers) {
  std::map<std::string, Containers> pods;
  for (const CoveredContainer& container : containers)
    if (container.pod) pods[container.pod->uid].push_back(&container);
  return pods;
}

bool names(const CoveredContainer& container, const std::string& policy) {
  if (!container.decision) return false;
  const auto& list = container.decision->policies;
  return std::find(list.begin(), list.end(), policy) != list.end();
}

std::map<model::CgroupId, std::uint32_t> count_processes(const model::Snapshot& snapshot) {
  std::map<model::CgroupId, std::uint32_t> counts;
  for (const model::Process& process : snapshot.processes)
    if (process.counted) ++counts[process.cgroup];
  return counts;
}

/// Why libraries of a cgroup's processes have no probes; empty: they have. A file that was refused is
/// known by the first process that was seen with it.
std::map<model::CgroupId, std::string> attach_failures(const model::Snapshot& snapshot) {
  std::map<model::FileKey, const model::Library*> failed;
  for (const model::Library& library : snapshot.libraries) {
    if (!library.reason.empty() && library.method == model::AttachMethod::kNone)
      failed.emplace(library.file, &library);
  }
  std::map<model::CgroupId, std::string> reasons;
  for (const model::Process& process : snapshot.processes) {
    for (const model::FileKey& file : process.libraries) {
      if (const auto found = failed.find(file); found != failed.end())
        reasons[process.cgroup] = found->second->path + ": " + found->second->reason;
    }
    for (const model::Refusal& refusal : snapshot.refusals) {
      const bool lasts = refusal.reason == "file_refused" || refusal.reason == "permission";
      if (lasts && refusal.pid == process.key.tgid) reasons[process.cgroup] = refusal.message;
    }
  }
  return reasons;
}

report::UntracedContainer untraced(const k8s::PodInfo& pod, std::string container,
                                   std::string reason, std::string message, std::string policy) {
  return {pod.k8s_namespace, pod.name,           std::move(container),
          std::move(reason), std::move(message), std::move(policy)};
}

std::string reason_word(const CoveredContainer& container) {
  if (container.state == "waiting") return "MetadataPending";
  if (container.reason.starts_with("container excluded")) return "ContainerExcluded";
  if (container.reason.starts_with("probes are off")) return "ProbesOff";
  return "NotSelected";
}

void add_host(report::NodeReport& report) {
  utsname names{};
  if (::uname(&names) != 0) return;
  report.kernel = names.release;
  report.architecture = names.machine;
}

report::Condition ready_condition(const NodeState& state) {
  if (!state.not_ready.empty())
    return {report::ConditionStatus::no, "ClusterStateUnknown", state.not_ready.front(), {}};
  if (!state.config.accepted)
    return {report::ConditionStatus::yes, "ConfigRejected", state.config.error, {}};
  if (state.snapshot->processes.empty())
    return {report::ConditionStatus::yes,
            "WaitingForProcesses",
            "no process maps libnccl, libcudart or libcuda",
            {}};
  return {report::ConditionStatus::yes, "Counting", "calls are counted", {}};
}

report::RecordedPod recorded(const PodRecordingStatus& status) {
  return {status.k8s_namespace, status.pod,        status.policies,       status.state,
          status.message,       status.files.path, status.files.files,    status.files.bytes,
          status.files.calls,   status.files.lost, status.started_unix_s, status.ends_unix_s};
}

}  // namespace

void NodeSummary::select(const ClusterView& view) {
  if (view.pods == pods_ && view.policies == policies_ && view.namespaces == namespaces_) return;
  pods_ = view.pods;
  policies_ = view.policies;
  namespaces_ = view.namespaces;
  selected_.clear();
  if (!policies_) return;
  static const policy::Labels kNone;
  for (const policy::PolicySet::Entry& entry : policies_->entries()) {
    if (!entry.selects_node) continue;
    Selected& selected = selected_.emplace_back(Selected{entry.policy, {}});
    for (const auto& [uid, pod] : pods_->pods()) {
      if (pod.gone_ns || pod.pod->uid != uid || pod.pod->phase != "Running") continue;
      const auto found = namespaces_ ? namespaces_->find(pod.pod->k8s_namespace)
                                     : std::map<std::string, policy::Labels>::const_iterator{};
      const bool known = namespaces_ && found != namespaces_->end();
      if (entry.policy.namespace_selector.matches(known ? found->second : kNone) &&
          entry.policy.pod_selector.matches(pod.pod->labels))
        selected.pods.push_back(pod.pod);
    }
  }
}

report::NodeReport NodeSummary::summarize(const NodeState& state) {
  select(*state.view);
  const model::Snapshot& snapshot = *state.snapshot;
  const auto pods = by_pod(state.containers);
  const auto processes = count_processes(snapshot);
  const auto failures = attach_failures(snapshot);
  report::NodeReport report;
  add_host(report);
  report.agent_version = kVersion;
  report.agent_pod = state.agent_pod;
  report.method = to_string(snapshot.method);
  report.cgroup_hierarchy = state.cgroup_hierarchy;
  for (const model::Library& library : snapshot.libraries) {
    report.probes += static_cast<std::uint32_t>(library.probes.size());
    report.files += library.probes.empty() ? 0 : 1;
  }
  report.processes = static_cast<std::uint32_t>(
      std::count_if(snapshot.processes.begin(), snapshot.processes.end(),
                    [](const model::Process& process) { return process.counted; }));
  if (state.with_calls) {
    calls_ = 0;
    for (const model::CallSeries& row : snapshot.calls) calls_ += row.totals.calls;
    series_ = snapshot.calls.size();
  }
  report.calls = calls_;
  report.series = series_;
  for (const auto& [reason, count] : snapshot.events_lost) report.losses.push_back({reason, count});
  report.config_generation = state.config.version;
  report.config_hash = state.config.hash;
  report.config_error = state.config.error;
  report.ready = ready_condition(state);
  for (const auto& [uid, containers] : pods)
    report.pods += std::any_of(containers.begin(), containers.end(), [](const auto* c) {
      return c->state == "traced" && c->pod->phase == "Running";
    });

  for (const Selected& selected : selected_) {
    const std::string& name = selected.policy.name;
    report::PolicyOnNode row;
    row.name = name;
    row.observed_generation = selected.policy.generation;
    row.pods = static_cast<std::uint32_t>(selected.pods.size());
    row.ready = true;
    row.reason = "Counting";
    for (const auto& pod : selected.pods) {
      const auto found = pods.find(pod->uid);
      if (found == pods.end()) {
        report.untraced.push_back(
            untraced(*pod, "", "NoLibrary", "no process maps libnccl, libcudart or libcuda", name));
        continue;
      }
      for (const CoveredContainer* container : found->second) {
        if (container->state == "gone") continue;
        if (const auto failure = failures.find(container->cgroup); failure != failures.end()) {
          row.ready = false;
          row.reason = "AttachFailed";
          row.message = failure->second;
          report.untraced.insert(
              report.untraced.begin(),
              untraced(*pod, container->container, "AttachFailed", failure->second, name));
        } else if (container->state == "traced" && names(*container, name)) {
          if (const auto count = processes.find(container->cgroup); count != processes.end())
            row.processes += count->second;
        } else {
          report.untraced.insert(report.untraced.begin(),
                                 untraced(*pod, container->container, reason_word(*container),
                                          container->reason, name));
        }
      }
    }
    report.policies.push_back(std::move(row));
  }
  for (const PolicyError& error : state.policy_errors)
    report.policies.push_back({error.name, 0, 0, 0, false, "Invalid", error.message});
  for (const PodRecordingStatus& status : state.recordings)
    report.recordings.push_back(recorded(status));
  return report;
}

}  // namespace ingero::app
