// SPDX-License-Identifier: Apache-2.0
#include "attribute/container_resolver.h"

#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "attribute/cgroup_path.h"
#include "base/text.h"
#include "base/text_file.h"

namespace ingero::attribute {
namespace {

using model::CgroupId;
using model::to_number;

constexpr std::size_t kMaxProcCgroupBytes = 256 * 1024;  // a dozen lines of at most 4 KiB each
constexpr std::size_t kMaxPathLength = 4096;             // PATH_MAX; the kernel shows no longer one
constexpr std::size_t kMaxLabelLength = 256;
constexpr std::string_view kDeletedSuffix = " (deleted)";

std::uint64_t to_ns(std::chrono::nanoseconds time) {
  return time.count() > 0 ? static_cast<std::uint64_t>(time.count()) : 0;
}

tl::unexpected<Error> reject(CgroupId id, std::string cause, std::string hint = "") {
  return fail(
      Error{"name cgroup", std::to_string(to_number(id)), std::move(cause), std::move(hint), 0});
}

std::string make_label(CgroupId id, const std::vector<std::string>& containers,
                       const std::string& path) {
  std::string label;
  for (const std::string& container : containers) label += (label.empty() ? "" : "/") + container;
  if (containers.empty()) label = escape_terminal(path);
  if (label.size() <= kMaxLabelLength) return label;
  // The id keeps two long paths apart; the cut falls before a whole UTF-8 character.
  const std::string tail = fmt::format("...#{}", to_number(id));
  std::size_t keep = kMaxLabelLength - tail.size();
  while (keep > 0 && (static_cast<unsigned char>(label[keep]) & 0xc0) == 0x80) --keep;
  return label.substr(0, keep) + tail;
}

ContainerInfo describe(CgroupId id, std::string path) {
  ContainerIdentity identity = parse_cgroup_path(path);
  ContainerInfo info;
  info.container_ids = parse_path_containers(path);
  info.pods = parse_path_pods(path);
  info.label = make_label(id, info.container_ids, path);
  info.container_id = std::move(identity.container_id);
  info.pod_uid = std::move(identity.pod_uid);
  info.runtime = std::move(identity.runtime);
  info.cgroup_path = std::move(path);
  return info;
}

bool is_whole(const ContainerInfo& info) { return info.cgroup_path.starts_with('/'); }

bool has_controller(std::string_view list, std::string_view controller) {
  while (!list.empty()) {
    const std::size_t comma = list.find(',');
    if (list.substr(0, comma) == controller) return true;
    if (comma == std::string_view::npos) return false;
    list.remove_prefix(comma + 1);
  }
  return false;
}

bool line_matches(std::string_view id, std::string_view controllers, CgroupHierarchy hierarchy) {
  switch (hierarchy) {
    case CgroupHierarchy::v2: return id == "0" && controllers.empty();
    case CgroupHierarchy::memory_v1: return has_controller(controllers, "memory");
    case CgroupHierarchy::pids_v1: return has_controller(controllers, "pids");
  }
  return false;
}

}  // namespace

std::optional<std::string> find_process_path(std::string_view proc_cgroup,
                                             CgroupHierarchy hierarchy) {
  while (!proc_cgroup.empty()) {
    const std::size_t newline = proc_cgroup.find('\n');
    const std::string_view line = proc_cgroup.substr(0, newline);
    const std::size_t first = line.find(':');
    const std::size_t second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second != line.npos &&
        line_matches(line.substr(0, first), line.substr(first + 1, second - first - 1),
                     hierarchy)) {
      return std::string(line.substr(second + 1));
    }
    if (newline == std::string_view::npos) break;
    proc_cgroup.remove_prefix(newline + 1);
  }
  return std::nullopt;
}

const ContainerInfo* ContainerTable::find(CgroupId id) const {
  const auto it = entries_.find(id);
  return it == entries_.end() ? nullptr : it->second.get();
}

ContainerResolver::ContainerResolver(HostRoots roots, CgroupMount mount, ResolverOptions options,
                                     const ClockSource& clock)
    : roots_(std::move(roots)), mount_(std::move(mount)), options_(options), clock_(clock) {
  ContainerInfo root;
  root.label = "/";
  root.cgroup_path = "/";
  entries_[CgroupId::kRoot] = Entry{std::make_shared<const ContainerInfo>(std::move(root)), "/"};
}

Status ContainerResolver::store(CgroupId id, std::string path,
                                std::optional<std::string> directory) {
  if (id == CgroupId::kUnknown) return reject(id, "0 is the id of no cgroup");
  if (id == CgroupId::kRoot) return {};
  if (path.empty() || path == "/") {
    return reject(id, "its path is hidden by the agent's cgroup namespace",
                  "run the agent in the host's cgroup namespace");
  }
  if (path.size() > kMaxPathLength) return reject(id, "its path is longer than 4096 bytes");
  auto info = std::make_shared<const ContainerInfo>(describe(id, std::move(path)));

  const std::lock_guard lock(mutex_);
  const auto it = entries_.find(id);
  if (it == entries_.end() && entries_.size() >= options_.max_entries) {
    ++stats_.refused;
    return reject(id, fmt::format("the table of {} cgroups is full", options_.max_entries));
  }
  negative_until_ns_.erase(to_number(id));
  if (it != entries_.end()) {
    if (is_whole(*it->second.info) && !is_whole(*info)) return {};
    if (*it->second.info == *info) {
      if (directory) it->second.directory = std::move(directory);
      return {};
    }
  }
  entries_[id] = Entry{std::move(info), std::move(directory)};
  snapshot_.reset();
  return {};
}

Status ContainerResolver::learn(CgroupId id, std::string_view path) {
  if (!path.starts_with('/')) {
    return reject(id, fmt::format("\"{}\" is not an absolute path", escape_terminal(path)));
  }
  // What /proc/PID/cgroup appends when the process has outlived the directory.
  if (path.ends_with(kDeletedSuffix)) path.remove_suffix(kDeletedSuffix.size());
  return store(id, mount_.path_of_process(path), mount_.directory_of(path));
}

Status ContainerResolver::learn_from_process(CgroupId id, std::uint32_t pid) {
  const std::string file = fmt::format("{}/{}/cgroup", roots_.proc, pid);
  const auto text = read_text_file(file, kMaxProcCgroupBytes, "name cgroup");
  if (!text) return fail(text.error());
  const auto path = find_process_path(*text, mount_.hierarchy());
  if (!path) {
    return reject(id, fmt::format("{} has no line of {}", file, to_string(mount_.hierarchy())));
  }
  const auto directory = mount_.directory_of(*path);
  if (!directory) {
    return reject(id,
                  fmt::format("{} is not below {}", escape_terminal(*path), mount_.mount_point()),
                  "mount the host's /sys/fs/cgroup into the agent");
  }
  struct stat status {};
  if (::stat(mount_.absolute_path(*directory).c_str(), &status) != 0) {
    // A process can outlive its cgroup's directory: what the path names then cannot be checked.
    const bool deleted = path->ends_with(kDeletedSuffix);
    return reject(id, fmt::format("the cgroup of process {} {}", pid,
                                  deleted ? "was removed" : "cannot be opened"));
  }
  if (status.st_ino != to_number(id)) {
    return reject(id, fmt::format("process {} is in cgroup {} by now", pid, status.st_ino));
  }
  return store(id, mount_.path_of_directory(*directory), directory);
}

Status ContainerResolver::learn_from_names(CgroupId id, std::span<const std::string_view> names,
                                           bool whole) {
  if (names.empty()) return reject(id, "the kernel gave no name");
  std::string path;
  for (const std::string_view name : names) path = fmt::format("/{}{}", name, path);
  if (!whole) return store(id, path.substr(1), std::nullopt);
  // Believed only where it is: the mount may show another part of the hierarchy than the kernel's.
  struct stat status {};
  std::optional<std::string> directory;
  if (::stat(mount_.absolute_path(path).c_str(), &status) == 0 && status.st_ino == to_number(id))
    directory = path;
  return store(id, std::move(path), std::move(directory));
}

ContainerResolver::IdSet ContainerResolver::claim_walk(std::span<const CgroupId> ids) {
  const std::uint64_t now_ns = clock_.monotonic_ns();
  IdSet wanted;
  const std::lock_guard lock(mutex_);
  for (const CgroupId id : ids) {
    if (id == CgroupId::kUnknown || entries_.contains(id)) continue;
    const auto miss = negative_until_ns_.find(to_number(id));
    if (miss != negative_until_ns_.end() && now_ns < miss->second) continue;
    wanted.insert(to_number(id));
  }
  if (wanted.empty()) return wanted;
  if (last_walk_ns_ && now_ns < *last_walk_ns_ + to_ns(options_.walk_interval)) {
    stats_.postponed += wanted.size();
    return {};
  }
  last_walk_ns_ = now_ns;
  ++stats_.walks;
  return wanted;
}

void ContainerResolver::finish_walk(const IdSet& wanted, const WalkResult& result) {
  const std::uint64_t now_ns = clock_.monotonic_ns();
  const std::lock_guard lock(mutex_);
  if (result.truncated) ++stats_.truncated_walks;
  if (negative_until_ns_.size() + wanted.size() > options_.max_negative) {
    std::erase_if(negative_until_ns_, [&](const auto& miss) { return miss.second <= now_ns; });
  }
  for (const std::uint64_t id : wanted) {
    if (entries_.contains(CgroupId{id})) continue;
    ++stats_.unresolved;
    if (negative_until_ns_.size() < options_.max_negative) {
      negative_until_ns_[id] = now_ns + to_ns(options_.negative_ttl);
    }
  }
}

void ContainerResolver::resolve_missing(std::span<const CgroupId> ids) {
  const IdSet wanted = claim_walk(ids);
  if (wanted.empty()) return;
  const WalkResult result = find_directories(mount_.mount_point(), wanted, options_.walk);
  for (const auto& [id, directory] : result.found) {
    // A refusal is counted by store(), and the id is then a miss like any other.
    (void)store(CgroupId{id}, mount_.path_of_directory(directory), directory);
  }
  finish_walk(wanted, result);
}

std::optional<ContainerInfo> ContainerResolver::resolve(CgroupId id) {
  for (const bool walked : {false, true}) {
    {
      const std::lock_guard lock(mutex_);
      if (const auto it = entries_.find(id); it != entries_.end()) return *it->second.info;
    }
    if (!walked) resolve_missing(std::span(&id, 1));
  }
  return std::nullopt;
}

std::shared_ptr<const ContainerTable> ContainerResolver::snapshot() const {
  const std::lock_guard lock(mutex_);
  if (!snapshot_) {
    ContainerTable::Entries copy;
    copy.reserve(entries_.size());
    for (const auto& [id, entry] : entries_) copy.emplace(id, entry.info);
    snapshot_ = std::make_shared<const ContainerTable>(std::move(copy));
  }
  return snapshot_;
}

bool ContainerResolver::is_gone(CgroupId id, const Entry& entry) const {
  // Known by its names only: it was learned because it was going away.
  if (!entry.directory) return true;
  struct stat status {};
  if (::stat(mount_.absolute_path(*entry.directory).c_str(), &status) != 0) return errno == ENOENT;
  return status.st_ino != to_number(id);
}

std::vector<CgroupId> ContainerResolver::gone(std::span<const CgroupId> living) const {
  const std::unordered_set<CgroupId, model::IdentityHash> alive(living.begin(), living.end());
  std::vector<std::pair<CgroupId, Entry>> others;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, entry] : entries_) {
      if (id != CgroupId::kRoot && !alive.contains(id)) others.emplace_back(id, entry);
    }
  }
  std::vector<CgroupId> ids;
  for (const auto& [id, entry] : others) {
    if (is_gone(id, entry)) ids.push_back(id);
  }
  return ids;
}

void ContainerResolver::forget(std::span<const CgroupId> gone,
                               std::span<const CgroupId> referenced) {
  const std::unordered_set<CgroupId, model::IdentityHash> keep(referenced.begin(),
                                                               referenced.end());
  std::vector<std::pair<CgroupId, Entry>> unreferenced;
  {
    const std::lock_guard lock(mutex_);
    for (const CgroupId id : gone) {
      const auto it = entries_.find(id);
      if (it != entries_.end() && id != CgroupId::kRoot && !keep.contains(id))
        unreferenced.emplace_back(id, it->second);
    }
  }
  std::erase_if(unreferenced,
                [this](const auto& item) { return !is_gone(item.first, item.second); });
  if (unreferenced.empty()) return;

  const std::lock_guard lock(mutex_);
  for (const auto& [id, entry] : unreferenced) {
    const auto it = entries_.find(id);
    // Learned again while its directory was looked at: another entry, which stays.
    if (it == entries_.end() || it->second.info != entry.info) continue;
    entries_.erase(it);
    ++stats_.forgotten;
    snapshot_.reset();
  }
}

ResolverStats ContainerResolver::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

}  // namespace ingero::attribute
