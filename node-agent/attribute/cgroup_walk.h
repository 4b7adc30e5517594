// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <unordered_set>

namespace ingero::attribute {

struct WalkLimits {
  std::size_t max_directories = 65536;
  std::size_t max_depth = 32;
};

struct WalkResult {
  /// Inode number -> directory below the top ("/" is the top itself).
  std::unordered_map<std::uint64_t, std::string> found;
  std::size_t directories = 0;  ///< looked at
  bool truncated = false;       ///< a limit ended it: what is missing may exist
};

/// Looks below `top` for directories with these inode numbers, breadth first, on one file system,
/// without following links. Ends when all are found. Directories that vanish meanwhile are passed
/// over.
WalkResult find_directories(const std::string& top, const std::unordered_set<std::uint64_t>& wanted,
                            const WalkLimits& limits);

}  // namespace ingero::attribute
