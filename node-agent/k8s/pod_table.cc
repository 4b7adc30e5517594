// SPDX-License-Identifier: Apache-2.0
#include "k8s/pod_table.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

namespace ingero::k8s {

const ContainerEntry* PodSnapshot::find_container(std::string_view id) const {
  const auto found = containers_.find(id);
  return found == containers_.end() ? nullptr : &found->second;
}

const PodEntry* PodSnapshot::find_pod(std::string_view uid) const {
  const auto found = pods_.find(uid);
  return found == pods_.end() ? nullptr : &found->second;
}

PodTable::PodTable(std::chrono::nanoseconds retention, const ClockSource& clock)
    : retention_ns_(static_cast<std::uint64_t>(retention.count())), clock_(clock) {}

void PodTable::replace(const std::vector<nlohmann::json>& pods) {
  const std::lock_guard lock(mutex_);
  std::unordered_set<std::string> present;
  for (const auto& object : pods) present.insert(text_at(object, {"metadata", "uid"}));
  // Before the others are stored: a mirror pod that was made anew has its predecessor's containers.
  for (auto& [uid, pod] : pods_) {
    if (!present.contains(uid)) mark_pod_gone(pod);
  }
  for (const auto& object : pods) store(object);
  drop_expired();
  snapshot_.reset();
}

void PodTable::apply(ChangeType type, const nlohmann::json& pod) {
  const std::lock_guard lock(mutex_);
  // A deleted pod too: its last state may name containers that no event before it did.
  store(pod);
  switch (type) {
    case ChangeType::added:
    case ChangeType::modified: break;
    case ChangeType::deleted:
      if (const auto found = pods_.find(text_at(pod, {"metadata", "uid"})); found != pods_.end())
        mark_pod_gone(found->second);
      break;
  }
  drop_expired();
  snapshot_.reset();
}

void PodTable::store(const nlohmann::json& object) {
  auto info = read_pod(object);
  if (!info) {
    ++stats_.malformed_pods;
    return;
  }
  Pod& pod = pods_[info->uid];
  pod.entry.gone_ns.reset();
  // One copy for all containers, which also stays the same while nothing changes.
  if (!pod.entry.pod || *pod.entry.pod != *info)
    pod.entry.pod = std::make_shared<const PodInfo>(std::move(*info));

  std::vector<std::string> ids;
  for (ContainerStatus& status : read_container_statuses(object, stats_.malformed_ids)) {
    ContainerEntry& entry = containers_[status.id];
    // A current container is read before the ones it replaced, and the id is the runtime's own: a
    // pod cannot take the container of another one over.
    if (entry.pod && entry.pod->uid != pod.entry.pod->uid && !entry.gone_ns) continue;
    entry = ContainerEntry{pod.entry.pod, std::move(status.name), status.kind, std::nullopt};
    ids.push_back(std::move(status.id));
  }
  for (const std::string& id : pod.container_ids) {
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) mark_container_gone(id);
  }
  pod.container_ids = std::move(ids);
}

void PodTable::mark_pod_gone(Pod& pod) {
  if (pod.entry.gone_ns) return;
  pod.entry.gone_ns = clock_.monotonic_ns();
  note_gone(*pod.entry.gone_ns);
  for (const std::string& id : pod.container_ids) mark_container_gone(id);
  pod.container_ids.clear();
}

void PodTable::mark_container_gone(const std::string& id) {
  const auto found = containers_.find(id);
  if (found == containers_.end() || found->second.gone_ns) return;
  found->second.gone_ns = clock_.monotonic_ns();
  note_gone(*found->second.gone_ns);
}

void PodTable::note_gone(std::uint64_t gone_ns) const {
  const std::uint64_t expiry = gone_ns + retention_ns_;
  next_expiry_ns_ = std::min(next_expiry_ns_.value_or(expiry), expiry);
}

void PodTable::drop_expired() const {
  const std::uint64_t now = clock_.monotonic_ns();
  if (!next_expiry_ns_ || now < *next_expiry_ns_) return;
  next_expiry_ns_.reset();
  const auto is_over = [&](const std::optional<std::uint64_t>& gone_ns) {
    if (!gone_ns) return false;
    if (now >= *gone_ns + retention_ns_) return true;
    note_gone(*gone_ns);
    return false;
  };
  stats_.dropped +=
      std::erase_if(containers_, [&](const auto& item) { return is_over(item.second.gone_ns); });
  std::erase_if(pods_, [&](const auto& item) { return is_over(item.second.entry.gone_ns); });
  snapshot_.reset();
}

std::shared_ptr<const PodSnapshot> PodTable::snapshot() const {
  const std::lock_guard lock(mutex_);
  drop_expired();
  if (!snapshot_) {
    TextMap<PodEntry> pods;
    for (const auto& [uid, pod] : pods_) pods.insert_or_assign(uid, pod.entry);
    for (const auto& [uid, pod] : pods_) {
      // A mirror pod that was made anew has the same hash: the one that is there counts.
      const auto& hash = pod.entry.pod->cgroup_uid;
      if (hash == uid) continue;
      const auto [known, is_new] = pods.try_emplace(hash, pod.entry);
      if (!is_new && known->second.gone_ns && !pod.entry.gone_ns) known->second = pod.entry;
    }
    snapshot_ = std::make_shared<const PodSnapshot>(containers_, std::move(pods));
  }
  return snapshot_;
}

PodTableStats PodTable::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

}  // namespace ingero::k8s
