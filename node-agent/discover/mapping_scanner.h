// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "discover/iterator_records.h"
#include "model/bpf_handles.h"
#include "model/identity.h"

namespace ingero::discover {

/// What changes whenever a file's content does: its key stays the same when it is overwritten in place.
struct FileVersion {
  std::uint64_t size = 0;
  std::uint64_t mtime_ns = 0;
  std::uint64_t ctime_ns = 0;
  auto operator<=>(const FileVersion&) const = default;
};

/// An executable mapping of a file, as the kernel itself knows it.
struct FileMapping {
  model::ProcessKey process;
  model::CgroupId cgroup = model::CgroupId::kUnknown;
  model::FileKey file;
  FileVersion version;
  std::uint32_t file_system = 0;  ///< magic number of the file's own, below any overlay
  std::uint32_t tid = 0;          ///< a thread that has the mappings: the main one may have ended
  std::uint64_t start = 0;        ///< addresses in the process
  std::uint64_t end = 0;
  std::string comm;
  std::string path;  ///< as the process sees it, raw; empty when the kernel could not tell
};

/// A process that has an address space.
struct RunningProcess {
  model::ProcessKey process;
  model::CgroupId cgroup = model::CgroupId::kUnknown;
  std::uint32_t tid = 0;       ///< a thread that has it: the leader, unless it has ended
  std::uint32_t mappings = 0;  ///< of any kind
};

/// What a walk over mappings has shown.
struct Walk {
  std::vector<FileMapping> mappings;  ///< one of each file and process
  bool whole = true;                  ///< it came to the end
};

/// Reads the mappings of processes through the BPF program iter/task_vma. Identity comes from here
/// alone: what stat and /proc/PID/maps say of overlay files differs from kernel to kernel. Thread safe, and
/// copies see the same. A walk takes locks of the process, so it belongs where waiting harms nobody;
/// to list processes takes none.
class MappingScanner {
 public:
  /// Finds out whether this kernel walks over single processes.
  explicit MappingScanner(const model::BpfHandles& handles);

  /// False: a walk is over the whole host, whoever is asked for (Linux 5.15).
  bool walks_single_processes() const { return single_; }

  Result<std::vector<RunningProcess>> processes() const;
  /// nullopt: it is gone.
  Result<std::optional<RunningProcess>> find_process(std::uint32_t pid) const;

  /// The mappings of one process.
  Result<Walk> walk(const RunningProcess& process, const WalkLimits& limits) const;
  /// Every process of the host in one walk; files marked as uninteresting are left out.
  Result<Walk> walk_host(const WalkLimits& limits) const;

  /// Every process on the host, however long it takes.
  Result<std::vector<FileMapping>> scan_all() const;
  /// One process; an empty answer when it is gone.
  Result<std::vector<FileMapping>> scan_process(std::uint32_t pid) const;

  /// The kernel's identity of an open file: maps one page of it and looks at the mapping.
  Result<model::FileKey> identity_of(int fd) const;

  /// Leaves a file out of later scans until it is changed.
  void mark_uninteresting(const model::FileKey& file, const FileVersion& version) const;

 private:
  Result<Walk> walk(const WalkOver& over, const WalkLimits& limits) const;
  Result<std::vector<RunningProcess>> list(const WalkOver& over) const;
  bool try_single() const;

  model::BpfHandles handles_;
  bool single_ = false;
};

}  // namespace ingero::discover
