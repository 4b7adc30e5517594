// SPDX-License-Identifier: Apache-2.0
#include "attribute/cgroup_hierarchy.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <system_error>
#include <tuple>
#include <utility>

#include "base/text_file.h"

namespace ingero::attribute {
namespace {

constexpr std::size_t kMaxCgroupsBytes = 64 * 1024;
constexpr std::size_t kMaxMountinfoBytes = 64 * 1024 * 1024;  // a busy node has thousands of mounts
constexpr const char* kOperation = "find the cgroup hierarchy";

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const std::size_t end = text.find(separator);
    if (end != 0) parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return parts;
}

/// mountinfo writes space, tab, newline and backslash as \ooo.
std::string unescape_mount(std::string_view text) {
  std::string out;
  const auto octal = [&](std::size_t i) { return text[i] >= '0' && text[i] <= '7'; };
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size() && octal(i + 1) && octal(i + 2) && octal(i + 3)) {
      out +=
          static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + text[i + 3] - '0');
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

bool is_below(std::string_view path, std::string_view parent) {
  return path.starts_with(parent) && (path.size() == parent.size() || path[parent.size()] == '/');
}

/// How many levels above the reader's cgroup namespace a root reaches ("/../.." is 2), -1 for a
/// subtree.
int levels_above(std::string_view root) {
  const auto parts = split(root, '/');
  const bool above =
      std::all_of(parts.begin(), parts.end(), [](auto part) { return part == ".."; });
  return above ? static_cast<int>(parts.size()) : -1;
}

bool carries(const CgroupMountEntry& entry, CgroupHierarchy hierarchy) {
  const auto has = [&](const char* option) {
    return !entry.v2 &&
           std::find(entry.options.begin(), entry.options.end(), option) != entry.options.end();
  };
  switch (hierarchy) {
    case CgroupHierarchy::v2: return entry.v2;
    case CgroupHierarchy::memory_v1: return has("memory");
    case CgroupHierarchy::pids_v1: return has("pids");
  }
  return false;
}

/// The mount that shows most of the hierarchy; among equals one under `sys`, then the first.
const CgroupMountEntry* widest_mount(const std::vector<CgroupMountEntry>& mounts,
                                     CgroupHierarchy hierarchy, std::string_view sys) {
  const CgroupMountEntry* best = nullptr;
  std::pair<int, bool> best_rank;
  for (const CgroupMountEntry& entry : mounts) {
    if (!carries(entry, hierarchy)) continue;
    const std::pair<int, bool> rank{levels_above(entry.root), is_below(entry.mount_point, sys)};
    if (best != nullptr && rank <= best_rank) continue;
    best = &entry;
    best_rank = rank;
  }
  return best;
}

/// Mount points are shown as /sys/...; a tree recorded elsewhere is reached through its own root.
std::string under_sys_root(const std::string& mount_point, const std::string& sys) {
  if (sys == "/sys" || is_below(mount_point, sys) || !is_below(mount_point, "/sys")) {
    return mount_point;
  }
  return sys + mount_point.substr(4);
}

bool has_child_directory(const std::string& directory) {
  std::error_code error;
  for (std::filesystem::directory_iterator it(directory, error), end; !error && it != end;
       it.increment(error)) {
    if (it->is_directory(error) && !error) return true;
  }
  return false;
}

/// What is mounted, ready to be chosen from.
struct Candidates {
  std::optional<CgroupMount> v2, memory, pids;
  bool memory_on_v1 = false;
};

std::optional<CgroupMount> take(const std::vector<CgroupMountEntry>& mounts,
                                CgroupHierarchy hierarchy, const HostRoots& roots) {
  const CgroupMountEntry* const entry = widest_mount(mounts, hierarchy, roots.sys);
  if (entry == nullptr) return std::nullopt;
  return CgroupMount(hierarchy, under_sys_root(entry->mount_point, roots.sys), entry->root);
}

CgroupMount with_reason(const CgroupMount& mount, std::string reason) {
  return CgroupMount(mount.hierarchy(), mount.mount_point(), mount.root(), std::move(reason));
}

Result<CgroupMount> choose(const Candidates& found) {
  if (found.memory && found.memory_on_v1) {
    return with_reason(*found.memory, "the memory controller is on a v1 hierarchy");
  }
  if (found.v2 && !found.memory_on_v1 &&
      (!found.pids || has_child_directory(found.v2->mount_point()))) {
    return with_reason(*found.v2, "a cgroup v2 tree is mounted and memory is not on v1");
  }
  if (found.pids) {
    return with_reason(*found.pids, found.v2
                                        ? "the cgroup v2 tree is not in use, pids v1 is mounted"
                                        : "neither memory v1 nor cgroup v2 is mounted");
  }
  if (found.v2) {
    return with_reason(*found.v2, "memory is on a v1 hierarchy that is not mounted here; v2 is");
  }
  return fail(Error{kOperation, "", "no cgroup v2, memory v1 or pids v1 mount is visible",
                    "mount the host's /sys/fs/cgroup into the agent", 0});
}

Result<CgroupMount> take_forced(const Candidates& found, CgroupHierarchy forced) {
  const std::optional<CgroupMount>* chosen = &found.v2;
  switch (forced) {
    case CgroupHierarchy::v2: break;
    case CgroupHierarchy::memory_v1: chosen = &found.memory; break;
    case CgroupHierarchy::pids_v1: chosen = &found.pids; break;
  }
  if (*chosen) return with_reason(**chosen, "set by the configuration");
  return fail(Error{kOperation, std::string(to_string(forced)),
                    "the configured hierarchy is not mounted here",
                    "set cgroup_hierarchy to auto, or mount the host's /sys/fs/cgroup", 0});
}

}  // namespace

std::string_view to_string(CgroupHierarchy hierarchy) {
  switch (hierarchy) {
    case CgroupHierarchy::v2: return "cgroup v2";
    case CgroupHierarchy::memory_v1: return "memory (cgroup v1)";
    case CgroupHierarchy::pids_v1: return "pids (cgroup v1)";
  }
  return "unknown";
}

CgroupMount::CgroupMount(CgroupHierarchy hierarchy, std::string mount_point, std::string root,
                         std::string reason)
    : hierarchy_(hierarchy),
      mount_point_(std::move(mount_point)),
      root_(std::move(root)),
      reason_(std::move(reason)) {}

bool CgroupMount::root_is_above_namespace() const { return levels_above(root_) >= 0; }

std::optional<std::string> CgroupMount::directory_of(std::string_view process_path) const {
  if (!process_path.starts_with('/')) return std::nullopt;
  if (root_ != "/") {
    if (!is_below(process_path, root_)) return std::nullopt;
    process_path.remove_prefix(root_.size());
  }
  for (const std::string_view part : split(process_path, '/')) {
    if (part == "." || part == "..") return std::nullopt;
  }
  return process_path.empty() ? "/" : std::string(process_path);
}

std::string CgroupMount::path_of_directory(std::string_view directory) const {
  if (root_is_above_namespace()) return std::string(directory);
  return directory == "/" ? root_ : root_ + std::string(directory);
}

std::string CgroupMount::path_of_process(std::string_view process_path) const {
  if (const auto directory = directory_of(process_path)) return path_of_directory(*directory);
  if (!process_path.starts_with("/..")) return std::string(process_path);
  while (process_path.starts_with("/..") && (process_path.size() == 3 || process_path[3] == '/')) {
    process_path.remove_prefix(3);
  }
  if (process_path.starts_with('/')) process_path.remove_prefix(1);
  return std::string(process_path);
}

std::string CgroupMount::absolute_path(std::string_view directory) const {
  return directory == "/" ? mount_point_ : mount_point_ + std::string(directory);
}

std::vector<CgroupController> parse_proc_cgroups(std::string_view text) {
  std::vector<CgroupController> controllers;
  for (const std::string_view line : split(text, '\n')) {
    const auto columns = split(line, '\t');
    if (columns.size() < 2 || columns[0].starts_with('#')) continue;
    int id = 0;
    const auto [end, error] =
        std::from_chars(columns[1].data(), columns[1].data() + columns[1].size(), id);
    if (error != std::errc() || end != columns[1].data() + columns[1].size()) continue;
    controllers.push_back({std::string(columns[0]), id});
  }
  return controllers;
}

std::vector<CgroupMountEntry> parse_cgroup_mounts(std::string_view mountinfo) {
  std::vector<CgroupMountEntry> mounts;
  for (const std::string_view line : split(mountinfo, '\n')) {
    // 36 35 0:31 <root> <mount point> <options> [optional fields] - <type> <source> <super options>
    const std::size_t dash = line.find(" - ");
    if (dash == std::string_view::npos) continue;
    const auto left = split(line.substr(0, dash), ' ');
    const auto right = split(line.substr(dash + 3), ' ');
    if (left.size() < 6 || right.size() < 3) continue;
    if (right[0] != "cgroup" && right[0] != "cgroup2") continue;
    CgroupMountEntry entry{
        unescape_mount(left[3]), unescape_mount(left[4]), right[0] == "cgroup2", {}};
    for (const std::string_view option : split(right.back(), ','))
      entry.options.emplace_back(option);
    mounts.push_back(std::move(entry));
  }
  return mounts;
}

Result<CgroupMount> find_cgroup_hierarchy(const HostRoots& roots,
                                          std::optional<CgroupHierarchy> forced) {
  const auto mountinfo =
      read_text_file(roots.proc + "/self/mountinfo", kMaxMountinfoBytes, kOperation);
  if (!mountinfo) return fail(mountinfo.error());
  const auto mounts = parse_cgroup_mounts(*mountinfo);

  Candidates found;
  found.v2 = take(mounts, CgroupHierarchy::v2, roots);
  found.memory = take(mounts, CgroupHierarchy::memory_v1, roots);
  found.pids = take(mounts, CgroupHierarchy::pids_v1, roots);
  if (forced) return take_forced(found, *forced);

  const auto cgroups = read_text_file(roots.proc + "/cgroups", kMaxCgroupsBytes, kOperation);
  // A kernel without any v1 controller may have no such file.
  if (!cgroups && cgroups.error().code != ENOENT) return fail(cgroups.error());
  for (const CgroupController& controller : parse_proc_cgroups(cgroups.value_or(""))) {
    if (controller.name == "memory") found.memory_on_v1 = controller.hierarchy_id != 0;
  }
  return choose(found);
}

}  // namespace ingero::attribute
