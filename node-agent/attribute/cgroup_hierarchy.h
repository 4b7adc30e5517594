// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace ingero::attribute {

/// Where the host's /proc and /sys are seen; tests pass recorded trees.
struct HostRoots {
  std::string proc = "/proc";
  std::string sys = "/sys";
};

/// The cgroup hierarchy whose directories are the containers (docs/adr/0003-cgroup-hierarchy.md).
/// BPF programs must report the cgroup ids of the same one.
enum class CgroupHierarchy { v2, memory_v1, pids_v1 };

std::string_view to_string(CgroupHierarchy hierarchy);

/// A mounted cgroup hierarchy. Three kinds of path meet here: what /proc/PID/cgroup shows (relative
/// to the reader's cgroup namespace), the directory below the mount point, and the path from the
/// hierarchy's root, which is what is shown to users.
class CgroupMount {
 public:
  CgroupMount(CgroupHierarchy hierarchy, std::string mount_point, std::string root = "/",
              std::string reason = "");

  CgroupHierarchy hierarchy() const { return hierarchy_; }
  /// Absolute path in the agent's mount namespace.
  const std::string& mount_point() const { return mount_point_; }
  /// The part of the hierarchy that is mounted, as mountinfo shows it: "/", "/kubepods/..." for a
  /// bind mount of a subtree, "/../.." when it reaches above the agent's cgroup namespace.
  const std::string& root() const { return root_; }
  /// Why this hierarchy was chosen, for logs and `ingero check`.
  const std::string& reason() const { return reason_; }

  /// Directory below the mount point ("/" is the mount point itself) of a path that
  /// /proc/PID/cgroup shows; nullopt when the mount does not reach it.
  std::optional<std::string> directory_of(std::string_view process_path) const;
  /// Path from the hierarchy's root of a directory below the mount point.
  std::string path_of_directory(std::string_view directory) const;
  /// Path from the hierarchy's root of a path that /proc/PID/cgroup shows. Without a leading slash
  /// when only its end is known (a namespace hides the rest).
  std::string path_of_process(std::string_view process_path) const;
  /// Absolute path of a directory below the mount point.
  std::string absolute_path(std::string_view directory) const;

 private:
  bool root_is_above_namespace() const;

  CgroupHierarchy hierarchy_;
  std::string mount_point_;
  std::string root_;
  std::string reason_;
};

/// One line of /proc/cgroups.
struct CgroupController {
  std::string name;
  int hierarchy_id = 0;  ///< 0: not on a v1 hierarchy
};

/// One cgroup mount of mountinfo.
struct CgroupMountEntry {
  std::string root;
  std::string mount_point;
  bool v2 = false;
  std::vector<std::string> options;  ///< super block options: names the controllers of a v1 mount
};

/// Lines that do not parse are skipped: the kernel adds columns at will.
std::vector<CgroupController> parse_proc_cgroups(std::string_view text);
std::vector<CgroupMountEntry> parse_cgroup_mounts(std::string_view mountinfo);

/// Finds the hierarchy that names containers from <proc>/cgroups and <proc>/self/mountinfo: memory
/// v1 where the memory controller is on a mounted v1 hierarchy, else a mounted v2 tree that is in
/// use, else pids v1. `forced` skips the choice; the hierarchy must still be mounted. Mount points
/// under /sys are looked up under roots.sys.
Result<CgroupMount> find_cgroup_hierarchy(const HostRoots& roots,
                                          std::optional<CgroupHierarchy> forced = std::nullopt);

}  // namespace ingero::attribute
