// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
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

/// Reads the mappings of processes through the BPF program iter/task_vma. Identity comes from here
/// alone: what stat and /proc/PID/maps say of overlay files differs from kernel to kernel. May be copied,
/// and used by several threads.
class MappingScanner {
 public:
  explicit MappingScanner(const model::BpfHandles& handles) : handles_(handles) {}

  /// Every process on the host; files marked as uninteresting are left out.
  Result<std::vector<FileMapping>> scan_all() const { return scan(0); }

  /// One process; an empty answer when it is gone.
  Result<std::vector<FileMapping>> scan_process(std::uint32_t pid) const { return scan(pid); }

  /// The kernel's identity of an open file: maps one page of it and looks at the mapping.
  Result<model::FileKey> identity_of(int fd) const;

  /// Leaves a file out of later scans until it is changed.
  void mark_uninteresting(const model::FileKey& file, const FileVersion& version) const;

 private:
  Result<std::vector<FileMapping>> scan(std::uint32_t pid) const;

  model::BpfHandles handles_;
};

}  // namespace ingero::discover
