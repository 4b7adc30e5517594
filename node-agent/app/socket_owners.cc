// SPDX-License-Identifier: Apache-2.0
#include "app/socket_owners.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <set>

#include "base/clock.h"

namespace ingero::app {
namespace {

constexpr std::size_t kManyRows = 2048;  // half of the kernel's map
constexpr std::uint64_t kForgetEvery = 64;

std::uint32_t namespace_inode(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 ? static_cast<std::uint32_t>(status.st_ino) : 0;
}

}  // namespace

SocketOwners::SocketOwners(attribute::ContainerResolver& containers, ProcessSource traced)
    : containers_(containers), traced_(std::move(traced)) {
  host_netns_ = namespace_inode("/proc/1/ns/net");
  if (containers.mount().hierarchy() == attribute::CgroupHierarchy::v2) return;
  auto mount = attribute::find_cgroup_hierarchy({}, attribute::CgroupHierarchy::v2);
  if (mount) v2_ = std::make_unique<attribute::ContainerResolver>(attribute::HostRoots{}, *mount);
}

std::uint32_t SocketOwners::netns_of(const model::ProcessKey& process) {
  const auto [known, added] = netns_.try_emplace(process, 0);
  if (added) known->second = namespace_inode(fmt::format("/proc/{}/ns/net", process.tgid));
  return known->second;
}

std::optional<model::CgroupId> SocketOwners::by_cgroup(model::CgroupId socket,
                                                       const attribute::ContainerTable& table) {
  if (!v2_) return table.find(socket) != nullptr ? std::optional(socket) : std::nullopt;
  const auto owner = v2_->resolve(socket);
  if (!owner || owner->container_id.empty()) return std::nullopt;
  for (const auto& [cgroup, info] : table.entries())
    if (info->label == owner->label) return cgroup;
  return std::nullopt;
}

void SocketOwners::learn_namespaces(const std::vector<model::Process>& processes) {
  by_netns_.clear();
  std::map<model::ProcessKey, std::uint32_t> still_there;
  for (const model::Process& process : processes) {
    const std::uint32_t netns = netns_of(process.key);
    still_there.emplace(process.key, netns);
    if (netns != 0 && netns != host_netns_) by_netns_.try_emplace(netns, process.cgroup);
  }
  netns_ = std::move(still_there);
}

std::optional<model::CgroupId> SocketOwners::owner(model::CgroupId socket, std::uint32_t netns) {
  constexpr std::uint64_t kPatienceNs = 200'000'000;
  const std::lock_guard lock(mutex_);
  if (const auto owner = by_cgroup(socket, *containers_.snapshot())) return owner;
  const std::uint64_t now = system_clock_source().monotonic_ns();
  if (!by_netns_.contains(netns) && now - learnt_ns_ > kPatienceNs) {
    learn_namespaces(traced_());
    learnt_ns_ = now;
  }
  const auto shared = by_netns_.find(netns);
  return shared == by_netns_.end() ? std::nullopt : std::optional(shared->second);
}

std::vector<model::RetransmitSeries> SocketOwners::attribute(
    model::Snapshot& snapshot,
    const std::unordered_set<model::CgroupId, model::IdentityHash>& calling) {
  const std::lock_guard lock(mutex_);
  forget_sockets(snapshot);
  const auto table = containers_.snapshot();
  std::set<model::CgroupId> traced(calling.begin(), calling.end());
  for (const model::Process& process : snapshot.processes) traced.insert(process.cgroup);
  for (const model::CallSeries& row : snapshot.calls) traced.insert(row.cgroup);
  learn_namespaces(snapshot.processes);
  const bool crowded = snapshot.retransmits.size() > kManyRows;
  std::vector<model::RetransmitSeries> strangers;
  for (const model::RetransmitSeries& row : snapshot.retransmits) {
    if (const auto owner = owner_of(row, *table, traced)) credit(row, *owner);
    else if (crowded) strangers.push_back(row);
  }
  for (const model::RetransmitSeries& row : strangers)
    credited_.erase({row.cgroup, row.netns, row.ipv6});  // the kernel will count it from zero
  forget_credits(*table);
  snapshot.retransmits.clear();
  for (const auto& [place, segments] : credits_) {
    const auto& [owner, ipv6] = place;
    snapshot.retransmits.push_back({owner.cgroup, 0, ipv6, owner.whole_pod, segments});
  }
  return strangers;
}

std::optional<SocketOwners::Owner> SocketOwners::owner_of(const model::RetransmitSeries& row,
                                                          const attribute::ContainerTable& table,
                                                          const std::set<model::CgroupId>& traced) {
  const auto owner = by_cgroup(row.cgroup, table);
  if (owner && traced.contains(*owner)) return Owner{*owner, false};
  const auto shared = by_netns_.find(row.netns);
  if (shared == by_netns_.end()) return std::nullopt;
  return Owner{shared->second, true};
}

void SocketOwners::credit(const model::RetransmitSeries& row, const Owner& owner) {
  std::uint64_t& credited = credited_[{row.cgroup, row.netns, row.ipv6}];
  if (row.segments <= credited) return;  // also an older snapshot than the last
  credits_[{owner, row.ipv6}] += row.segments - credited;
  credited = row.segments;
}

/// Of containers that are gone.
void SocketOwners::forget_credits(const attribute::ContainerTable& table) {
  std::erase_if(credits_,
                [&](const auto& entry) { return table.find(entry.first.first.cgroup) == nullptr; });
}

/// Cgroups of the v2 hierarchy that are gone, and that no row names.
void SocketOwners::forget_sockets(const model::Snapshot& snapshot) {
  if (!v2_ || ++rounds_ % kForgetEvery != 0) return;
  std::vector<model::CgroupId> named;
  for (const model::RetransmitSeries& row : snapshot.retransmits) named.push_back(row.cgroup);
  v2_->retain(named);
}

}  // namespace ingero::app
