// SPDX-License-Identifier: Apache-2.0
#include "app/workloads.h"

#include <algorithm>
#include <set>

#include "policy/glob.h"

namespace ingero::app {
namespace {

using model::CgroupId;
using policy::Decision;
using policy::FunctionSet;

FunctionSet without(const FunctionSet& set, const FunctionSet& other) {
  return {set.nccl & ~other.nccl, set.cuda && !other.cuda};
}

void subtract(model::CallTotals& totals, const model::CallTotals& other) {
  totals.calls -= other.calls;
  totals.errors -= other.errors;
  totals.bytes -= other.bytes;
  totals.duration_ns -= other.duration_ns;
  totals.unfinished -= other.unfinished;
  totals.barriers -= other.barriers;
  totals.slow -= other.slow;
  for (std::size_t i = 0; i < totals.sizes.size(); ++i) totals.sizes[i] -= other.sizes[i];
  for (std::size_t i = 0; i < totals.durations.size(); ++i)
    totals.durations[i] -= other.durations[i];
}

bool has_passed(const std::optional<std::uint64_t>& since_ns, std::chrono::nanoseconds time,
                std::uint64_t now_ns) {
  return since_ns && now_ns >= *since_ns + static_cast<std::uint64_t>(time.count());
}

}  // namespace

std::string metric_label_name(std::string_view prefix, std::string_view name) {
  std::string label(prefix);
  for (const char c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    label += plain ? c : '_';
  }
  return label;
}

void Workloads::set_settings(Settings settings) {
  const std::lock_guard lock(mutex_);
  settings_ = std::move(settings);
}

void Workloads::set_cluster(std::shared_ptr<const ClusterView> view) {
  const std::lock_guard lock(mutex_);
  cluster_ = std::move(view);
}

void Workloads::set_fallback(Decision fallback) {
  const std::lock_guard lock(mutex_);
  fallback_ = std::move(fallback);
}

// ---- who it is -----------------------------------------------------------------------------------

void Workloads::classify(Entry& entry, std::uint64_t now_ns) const {
  if (!cluster_ || (entry.info->pods.empty() && entry.info->pod_uid.empty())) {
    // A path of which only the end is known may not name the pod. A whole one would: who is in no pod's
    // cgroup has only named a cgroup after a container.
    const bool known = cluster_ && !entry.info->cgroup_path.starts_with('/') &&
                       find_container(entry, nullptr) != nullptr;
    if (!known && entry.kind != Kind::pod) {
      entry.kind = Kind::not_pod;
      return;
    }
  }
  classify_pod(entry, now_ns);
}

bool Workloads::is_patient(const Entry& entry, std::uint64_t now_ns) const {
  return !has_passed(entry.first_seen_ns, settings_.patience, now_ns) && !entry.gone_ns;
}

/// The pod that the path goes through: the outermost that the API server knows. Who lives in a pod can name
/// cgroups inside it after other pods, so an outer one that is not known yet is waited for.
const k8s::PodEntry* Workloads::find_pod(const Entry& entry, std::uint64_t now_ns) const {
  const k8s::PodSnapshot& pods = *cluster_->pods;
  if (entry.pod) return pods.find_pod(entry.pod->uid);
  if (entry.info->pods.empty()) return pods.find_pod(entry.info->pod_uid);
  for (const attribute::PathPod& on_path : entry.info->pods) {
    if (const k8s::PodEntry* pod = pods.find_pod(on_path.uid)) return pod;
    if (is_patient(entry, now_ns)) return nullptr;
  }
  return nullptr;
}

/// The container of that pod that the path goes through; no other pod's, whatever the path says. Without a
/// pod any.
const k8s::ContainerEntry* Workloads::find_container(const Entry& entry,
                                                     const k8s::PodInfo* pod) const {
  const auto look_up = [&](const std::string& id) -> const k8s::ContainerEntry* {
    const k8s::ContainerEntry* container = cluster_->pods->find_container(id);
    const bool fits = container != nullptr && (pod == nullptr || container->pod->uid == pod->uid);
    return fits ? container : nullptr;
  };
  for (const std::string& id : entry.info->container_ids)
    if (const k8s::ContainerEntry* container = look_up(id)) return container;
  return look_up(entry.info->container_id);
}

/// A pod that was once found stays the cgroup's, whatever becomes of it: cgroup ids are not reused
/// while anything is counted under them.
void Workloads::classify_pod(Entry& entry, std::uint64_t now_ns) const {
  const k8s::PodEntry* pod = find_pod(entry, now_ns);
  const bool names_pod = !entry.info->pods.empty() || !entry.info->pod_uid.empty();
  const k8s::ContainerEntry* container = nullptr;
  if (pod != nullptr || entry.pod)
    container = find_container(entry, pod != nullptr ? pod->pod.get() : entry.pod.get());
  else if (!names_pod) container = find_container(entry, nullptr);
  if (pod == nullptr && container != nullptr) pod = cluster_->pods->find_pod(container->pod->uid);
  if (container != nullptr && !entry.container_known) {
    entry.container = container->name;
    entry.container_kind = to_string(container->kind);
    entry.container_known = true;
  }
  if (pod != nullptr) {
    entry.pod = pod->pod;
    entry.gone_ns = pod->gone_ns;
  } else if (entry.pod && !entry.gone_ns && cluster_->pods_synced) {
    entry.gone_ns = now_ns;
  }
  const bool patient = is_patient(entry, now_ns);
  if (entry.pod && (entry.container_known || !patient)) entry.kind = Kind::pod;
  else entry.kind = patient ? Kind::waiting : Kind::unknown_pod;
}

std::optional<Decision> Workloads::decide(const Entry& entry) const {
  static const policy::Labels kNone;
  if (!cluster_ || !cluster_->policies) return cluster_ ? std::nullopt : std::optional(fallback_);
  if (entry.kind == Kind::waiting) return std::nullopt;
  if (entry.kind != Kind::pod) return cluster_->policies->decide_unmatched();
  if (!cluster_->namespaces) return std::nullopt;
  const auto found = cluster_->namespaces->find(entry.pod->k8s_namespace);
  const policy::Labels& namespace_labels =
      found == cluster_->namespaces->end() ? kNone : found->second;
  return cluster_->policies->decide(
      {entry.pod->k8s_namespace, namespace_labels, entry.pod->labels, entry.container});
}

// ---- what counts ---------------------------------------------------------------------------------

/// What functions have counted until now was outside of any covered span.
void Workloads::set_baseline(CgroupId cgroup, Entry& entry, const FunctionSet& functions,
                             const model::Snapshot& counts) {
  for (const model::CallSeries& row : counts.calls) {
    if (row.cgroup == cgroup && functions.contains(row.function))
      entry.baseline.calls[{row.function, row.direction}].add(row.totals);
  }
  for (const model::ErrorSeries& row : counts.errors) {
    if (row.cgroup == cgroup && functions.contains(row.function))
      entry.baseline.errors[{row.function, row.code}] += row.count;
  }
}

void Workloads::take_decision(CgroupId cgroup, Entry& entry, Decision decision,
                              std::uint64_t now_ns, std::optional<model::Snapshot>& counts) {
  const FunctionSet added = without(decision.functions, entry.covered);
  // The first decision covers what was counted while there was none.
  if (entry.decision && !added.empty()) {
    if (!counts) counts = read_counts_();
    set_baseline(cgroup, entry, added, *counts);
  }
  entry.covered = entry.covered | decision.functions;
  if (decision.traced) entry.uncovered_ns.reset();
  else if (!entry.uncovered_ns) entry.uncovered_ns = now_ns;
  entry.decision = std::move(decision);
}

bool Workloads::is_recorded(const Entry& entry) const {
  return entry.pod && entry.decision && entry.decision->recording &&
         recorded_pods_.contains(entry.pod->uid);
}

void Workloads::set_recorded_pods(std::set<std::string> uids) {
  const std::lock_guard lock(mutex_);
  recorded_pods_ = std::move(uids);
  std::vector<KernelChange> changes;
  for (auto& [cgroup, entry] : entries_) {
    if (entry.streamed == is_recorded(entry)) continue;
    entry.streamed = !entry.streamed;
    changes.push_back({cgroup, entry.decision, entry.streamed});
  }
  if (!changes.empty()) write_kernel_(changes);
}

std::vector<CgroupId> Workloads::refresh(const attribute::ContainerTable& containers,
                                         std::uint64_t now_ns) {
  const std::lock_guard lock(mutex_);
  std::vector<KernelChange> changes;
  std::optional<model::Snapshot> counts;
  for (const auto& [cgroup, info] : containers.entries()) {
    Entry& entry = entries_[cgroup];
    if (entry.first_seen_ns == 0) {
      entry.first_seen_ns = now_ns;
      const auto unnamed = unnamed_.find(cgroup);
      entry.unnamed = unnamed != unnamed_.end() && unnamed->second.settled;
    }
    entry.info = info;
    classify(entry, now_ns);
    auto decision = decide(entry);
    if (!decision || decision == entry.decision) continue;
    take_decision(cgroup, entry, *decision, now_ns, counts);
    entry.streamed = is_recorded(entry);
    changes.push_back({cgroup, std::move(decision), entry.streamed});
  }
  std::erase_if(entries_, [&](const auto& item) {
    if (containers.find(item.first) != nullptr) return false;
    changes.push_back({item.first, std::nullopt, false});
    return true;
  });
  end_gone(now_ns);
  std::vector<CgroupId> ended;
  for (const auto& [cgroup, entry] : entries_) {
    if (entry.ended) ended.push_back(cgroup);
  }
  if (!changes.empty()) write_kernel_(changes);
  return ended;
}

// ---- what has ended ------------------------------------------------------------------------------

Workloads::Label Workloads::label_of(const Entry& entry) const {
  if (entry.unnamed) return {};
  const std::string& container = entry.container_known ? entry.container : entry.info->label;
  if (!entry.pod) return {"", "", container};
  return {entry.pod->k8s_namespace, entry.pod->name, container};
}

/// The series of a container end one retention after it. Several may have the same labels one after the
/// other (a service, a pod with a fixed name): while one of them is there, what all have counted is.
void Workloads::end_gone(std::uint64_t now_ns) {
  std::vector<Entry*> over;
  for (auto& [cgroup, entry] : entries_) {
    if (!entry.ended && !entry.left && !entry.unnamed &&
        has_passed(entry.gone_ns, settings_.retention, now_ns))
      over.push_back(&entry);
  }
  if (over.empty()) return;
  std::set<Label> living;
  for (const auto& [cgroup, entry] : entries_) {
    if (!entry.ended && !entry.left && !has_passed(entry.gone_ns, settings_.retention, now_ns))
      living.insert(label_of(entry));
  }
  for (Entry* entry : over) {
    if (living.contains(label_of(*entry))) continue;
    (settings_.keep_ended ? entry->left : entry->ended) = true;
  }
}

void Workloads::set_gone(const std::vector<CgroupId>& gone, std::uint64_t now_ns) {
  const std::lock_guard lock(mutex_);
  const std::set<CgroupId> ids(gone.begin(), gone.end());
  for (auto& [cgroup, entry] : entries_) {
    if (entry.kind != Kind::not_pod && entry.kind != Kind::unknown_pod) continue;
    if (!ids.contains(cgroup)) {
      entry.gone_ns.reset();
      entry.ended = entry.left = false;
    } else if (!entry.gone_ns) {
      entry.gone_ns = now_ns;
    }
  }
}

/// Cgroups of which nobody knows the path, and what they have counted. Their series wait for it for a while;
/// then they are told without a name, and go on so.
void Workloads::count_unnamed(const std::map<CgroupId, std::uint64_t>& calls,
                              std::uint64_t now_ns) const {
  std::erase_if(unnamed_, [&](const auto& item) { return !calls.contains(item.first); });
  for (const auto& [cgroup, sum] : calls) {
    Unnamed& known = unnamed_[cgroup];
    if (known.first_seen_ns == 0) known.first_seen_ns = now_ns;
    known.settled = known.settled || has_passed(known.first_seen_ns, settings_.patience, now_ns);
    if (!known.settled || sum <= known.calls) continue;
    unnamed_calls_ += sum - known.calls;
    known.calls = sum;
  }
}

// ---- what is shown -------------------------------------------------------------------------------

const Workloads::Entry* Workloads::find(CgroupId cgroup) const {
  const auto found = entries_.find(cgroup);
  return found == entries_.end() ? nullptr : &found->second;
}

bool Workloads::is_visible(const Entry& entry, std::uint64_t now_ns) const {
  if (entry.unnamed) return true;
  if (entry.ended || entry.kind == Kind::waiting || !entry.decision) return false;
  return !has_passed(entry.uncovered_ns, settings_.retention, now_ns) && !entry.covered.empty();
}

/// What is not known at all is shown as such: the caller counts it.
bool Workloads::counts(const Entry* entry, std::uint16_t function, std::uint64_t now_ns) const {
  if (entry == nullptr || entry->unnamed) return true;
  return is_visible(*entry, now_ns) && entry->covered.contains(function);
}

void Workloads::filter_calls(model::Snapshot& snapshot, std::uint64_t now_ns) const {
  std::map<std::pair<CgroupId, Place>, model::CallTotals> reduced;
  std::map<CgroupId, std::uint64_t> unknown_pods, unnamed;
  std::erase_if(snapshot.calls, [&](const model::CallSeries& row) {
    const Entry* entry = find(row.cgroup);
    if (!counts(entry, row.function, now_ns)) return true;
    if (entry == nullptr || entry->unnamed) unnamed[row.cgroup] += row.totals.calls;
    if (entry != nullptr && entry->kind == Kind::unknown_pod)
      unknown_pods[row.cgroup] += row.totals.calls;
    const Place place{row.function, row.direction};
    if (entry == nullptr || !entry->baseline.calls.contains(place)) return false;
    reduced[{row.cgroup, place}].add(row.totals);
    return true;
  });
  for (auto& [key, totals] : reduced) {
    const auto& [cgroup, place] = key;
    const model::CallTotals& before = find(cgroup)->baseline.calls.at(place);
    if (totals.calls <= before.calls) continue;  // less: the collector has forgotten a part
    subtract(totals, before);
    snapshot.calls.push_back({{}, cgroup, place.first, place.second, totals});
  }
  for (const auto& [cgroup, calls] : unknown_pods) {
    std::uint64_t& counted = find(cgroup)->unknown_pod_calls;
    if (calls <= counted) continue;
    unknown_pod_calls_ += calls - counted;
    counted = calls;
  }
  snapshot.unattributed_calls["unknown_pod"] = unknown_pod_calls_;
  if (!snapshot.calls.empty()) count_unnamed(unnamed, now_ns);
  snapshot.unattributed_calls["unknown_cgroup"] = unnamed_calls_;
}

void Workloads::filter_errors(model::Snapshot& snapshot, std::uint64_t now_ns) const {
  std::erase_if(snapshot.errors, [&](model::ErrorSeries& row) {
    const Entry* entry = find(row.cgroup);
    if (!counts(entry, row.function, now_ns)) return true;
    if (entry == nullptr) return false;
    const auto base = entry->baseline.errors.find({row.function, row.code});
    if (base != entry->baseline.errors.end()) row.count -= std::min(row.count, base->second);
    return row.count == 0;
  });
}

void Workloads::filter(model::Snapshot& snapshot, std::uint64_t now_ns) const {
  const std::lock_guard lock(mutex_);
  filter_calls(snapshot, now_ns);
  filter_errors(snapshot, now_ns);
  const auto is_hidden = [&](const auto& row) {
    const Entry* entry = find(row.cgroup);
    return entry != nullptr && !is_visible(*entry, now_ns);
  };
  const auto is_untraced = [&](const auto& row) {
    const Entry* entry = find(row.cgroup);
    return is_hidden(row) || (entry != nullptr && !entry->decision->traced);
  };
  std::erase_if(snapshot.communicators, is_hidden);
  std::erase_if(snapshot.ended_collectives, is_hidden);
  std::erase_if(snapshot.retransmits, is_hidden);
  std::erase_if(snapshot.waits, is_hidden);
  for (model::Process& process : snapshot.processes) process.counted = !is_untraced(process);
}

bool Workloads::is_allowed(const std::string& name) const {
  return std::any_of(settings_.allowed_labels.begin(), settings_.allowed_labels.end(),
                     [&](const std::string& glob) { return policy::glob_matches(glob, name); });
}

exporting::Workload Workloads::labelled(const Entry& entry) const {
  exporting::Workload workload;
  if (entry.unnamed) return workload;
  workload.exported = !entry.left;
  workload.container = entry.container_known ? entry.container : entry.info->label;
  if (!entry.pod) return workload;
  workload.k8s_namespace = entry.pod->k8s_namespace;
  workload.pod = entry.pod->name;
  if (!entry.decision) return workload;
  workload.max_series = entry.decision->max_series;
  std::map<std::string, std::string> labels;  // two names may become one: the first holds
  const auto add = [&](std::string_view prefix, const std::vector<std::string>& wanted,
                       const std::map<std::string, std::string>& values) {
    for (const std::string& name : wanted) {
      const auto value = values.find(name);
      if (value == values.end() || !is_allowed(name)) continue;
      labels.emplace(metric_label_name(prefix, name), value->second);
    }
  };
  add("label_", entry.decision->pod_labels, entry.pod->labels);
  add("annotation_", entry.decision->pod_annotations, entry.pod->annotations);
  workload.labels.assign(labels.begin(), labels.end());
  return workload;
}

exporting::Workload Workloads::workload_of(CgroupId cgroup) const {
  const std::lock_guard lock(mutex_);
  const Entry* entry = find(cgroup);
  if (entry != nullptr) return labelled(*entry);
  exporting::Workload workload;
  const auto unnamed = unnamed_.find(cgroup);
  workload.exported = unnamed != unnamed_.end() && unnamed->second.settled;
  return workload;
}

std::vector<CoveredContainer> Workloads::containers() const {
  const std::lock_guard lock(mutex_);
  std::vector<CoveredContainer> list;
  for (const auto& [cgroup, entry] : entries_) {
    CoveredContainer row{cgroup, entry.pod, entry.container, entry.container_kind,
                         "",     "",        entry.decision};
    if (!entry.container_known) row.container = entry.info->label;
    if (entry.gone_ns) row.state = "gone";
    else if (!entry.decision) row.state = "waiting";
    else row.state = entry.decision->traced ? "traced" : "untraced";
    if (row.state == "waiting")
      row.reason = entry.kind == Kind::waiting ? "the pod's metadata is not known yet"
                                               : "policies are not known yet";
    else if (entry.decision) row.reason = entry.decision->reason;
    if (entry.kind == Kind::unknown_pod) row.reason = "the API server does not know its pod";
    list.push_back(std::move(row));
  }
  std::sort(list.begin(), list.end(),
            [](const auto& a, const auto& b) { return a.cgroup < b.cgroup; });
  return list;
}

}  // namespace ingero::app
