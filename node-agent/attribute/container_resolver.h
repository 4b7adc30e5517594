// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "attribute/cgroup_hierarchy.h"
#include "attribute/cgroup_path.h"
#include "attribute/cgroup_walk.h"
#include "base/clock.h"
#include "base/result.h"
#include "model/identity.h"

namespace ingero::attribute {

struct ContainerInfo {
  /// What the `container` label carries: the container id (of one in another: both, OUTER/INNER, so that
  /// a container that names a cgroup after another one is not taken for it), else the cgroup's path;
  /// printable and at most 256 bytes.
  std::string label;
  std::string container_id;                ///< the innermost; empty: the path names no container
  std::vector<std::string> container_ids;  ///< all on the path, the outermost first
  std::string pod_uid;
  std::vector<PathPod> pods;  ///< all on the path, the outermost first
  std::string runtime;
  /// From the hierarchy's root, as the kernel has it (any bytes but newline). Without a leading
  /// slash when only its last components are known.
  std::string cgroup_path;

  bool operator==(const ContainerInfo&) const = default;
};

/// An immutable state of the resolver, for readers.
class ContainerTable {
 public:
  using Entries = std::unordered_map<model::CgroupId, std::shared_ptr<const ContainerInfo>,
                                     model::IdentityHash>;

  explicit ContainerTable(Entries entries) : entries_(std::move(entries)) {}

  /// nullptr: not known. Lives as long as the table.
  const ContainerInfo* find(model::CgroupId id) const;
  const Entries& entries() const { return entries_; }
  std::size_t size() const { return entries_.size(); }

 private:
  Entries entries_;
};

struct ResolverOptions {
  std::chrono::nanoseconds walk_interval =
      std::chrono::seconds(1);  ///< at most one walk in this time
  std::chrono::nanoseconds negative_ttl =
      std::chrono::seconds(30);      ///< no walk again for a missing id
  std::size_t max_entries = 32768;   ///< known cgroups; further ones are refused
  std::size_t max_negative = 32768;  ///< remembered misses
  WalkLimits walk;
};

/// Counters since the start.
struct ResolverStats {
  std::uint64_t walks = 0;
  std::uint64_t truncated_walks = 0;  ///< ended by a limit
  std::uint64_t unresolved = 0;       ///< ids that a walk looked for and did not find
  std::uint64_t postponed = 0;        ///< misses that found the walk's interval not over
  std::uint64_t refused = 0;          ///< entries refused because the table was full
  std::uint64_t forgotten = 0;        ///< entries removed by forget()
};

/// Knows which container each cgroup id stands for. Thread safe; no lock is held across I/O, and
/// readers of a snapshot never wait.
class ContainerResolver {
 public:
  ContainerResolver(HostRoots roots, CgroupMount mount, ResolverOptions options = {},
                    const ClockSource& clock = system_clock_source());

  const CgroupMount& mount() const { return mount_; }

  /// Believes the caller: `path` as /proc/PID/cgroup shows it.
  Status learn(model::CgroupId id, std::string_view path);
  /// Reads <proc>/<pid>/cgroup and believes it if the directory's inode is the id. An error if the
  /// process is gone, lives in another cgroup by now, or its cgroup is out of the agent's sight.
  Status learn_from_process(model::CgroupId id, std::uint32_t pid);
  /// The names of a path, the leaf first, read from the kernel while the cgroup lived; `whole`: up to
  /// the root, whose name is not among them. Else a path learned otherwise wins over them.
  Status learn_from_names(model::CgroupId id, std::span<const std::string_view> names, bool whole);

  /// Looks for all ids that are not known in one walk of the mounted hierarchy, unless the last
  /// walk is less than walk_interval ago.
  void resolve_missing(std::span<const model::CgroupId> ids);
  /// What is known about `id`, walking if need be; nullopt: not known (the caller counts it).
  std::optional<ContainerInfo> resolve(model::CgroupId id);

  /// The current state. Copied at most once per change, so it is cheap to ask for.
  std::shared_ptr<const ContainerTable> snapshot() const;

  /// Cgroups that nothing can live in any more: their directories are gone, or were when they were
  /// learned and they are not in `living`.
  std::vector<model::CgroupId> gone(std::span<const model::CgroupId> living) const;

  /// Forgets those of `gone` that are still gone and not in `referenced`. What is referenced is found out after
  /// gone() was asked: in a cgroup that was gone then, nobody begins anything.
  void forget(std::span<const model::CgroupId> gone, std::span<const model::CgroupId> referenced);
  /// The same for whoever knows before what is referenced.
  void retain(std::span<const model::CgroupId> referenced) { forget(gone({}), referenced); }

  ResolverStats stats() const;

 private:
  struct Entry {
    std::shared_ptr<const ContainerInfo> info;
    std::optional<std::string> directory;  ///< below the mount point, where one is known
  };
  using IdSet = std::unordered_set<std::uint64_t>;

  Status store(model::CgroupId id, std::string path, std::optional<std::string> directory);
  /// The ids to walk for, or none if it is not the time.
  IdSet claim_walk(std::span<const model::CgroupId> ids);
  void finish_walk(const IdSet& wanted, const WalkResult& result);
  bool is_gone(model::CgroupId id, const Entry& entry) const;

  const HostRoots roots_;
  const CgroupMount mount_;
  const ResolverOptions options_;
  const ClockSource& clock_;

  mutable std::mutex mutex_;
  std::unordered_map<model::CgroupId, Entry, model::IdentityHash> entries_;
  std::unordered_map<std::uint64_t, std::uint64_t> negative_until_ns_;
  mutable std::shared_ptr<const ContainerTable> snapshot_;  ///< null: entries_ changed since
  std::optional<std::uint64_t> last_walk_ns_;
  ResolverStats stats_;
};

/// The path of a process in the hierarchy from the text of /proc/PID/cgroup; nullopt if it is not
/// there.
std::optional<std::string> find_process_path(std::string_view proc_cgroup,
                                             CgroupHierarchy hierarchy);

}  // namespace ingero::attribute
