// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <string>

namespace ingero::model {

/// A process: thread group id in the host's pid namespace and start time. A bare pid is never a key.
struct ProcessKey {
  std::uint32_t tgid = 0;
  std::uint64_t start_ns = 0;  ///< task_struct.start_boottime of the leader, ns since boot
  auto operator<=>(const ProcessKey&) const = default;
};

/// The kernel's own identity of a mapped file (the inode that uprobes use), never that of an overlay.
struct FileKey {
  std::uint32_t device = 0;  ///< kernel encoding: major << 20 | minor
  std::uint32_t generation =
      0;  ///< inode generation: tells a reused inode number from the old file
  std::uint64_t inode = 0;
  auto operator<=>(const FileKey&) const = default;
  std::uint32_t major() const { return device >> 20; }
  std::uint32_t minor() const { return device & 0xfffff; }
};

/// kernfs id of a cgroup directory (equal to its inode number) in the hierarchy that names containers.
enum class CgroupId : std::uint64_t { kUnknown = 0, kRoot = 1 };

inline std::uint64_t to_number(CgroupId id) { return static_cast<std::uint64_t>(id); }

struct IdentityHash {
  static std::size_t mix(std::uint64_t a, std::uint64_t b) {
    std::uint64_t x = a * 0x9e3779b97f4a7c15ULL ^ (b + 0xbf58476d1ce4e5b9ULL);
    x ^= x >> 29;
    return static_cast<std::size_t>(x * 0x94d049bb133111ebULL);
  }
  std::size_t operator()(const ProcessKey& key) const { return mix(key.tgid, key.start_ns); }
  std::size_t operator()(const FileKey& key) const {
    return mix((std::uint64_t{key.device} << 32) | key.generation, key.inode);
  }
  std::size_t operator()(CgroupId id) const { return mix(to_number(id), 0); }
};

}  // namespace ingero::model
