// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <unordered_map>

#include "base/result.h"
#include "model/identity.h"

namespace ingero::app {

/// What attached library files take of the agent's: an index of the cookie, and descriptors. Each
/// container has a share of both, so that none takes all; what is given back is used again, the index that
/// has rested longest first.
class LibraryRoom {
 public:
  static constexpr std::size_t kFilesPerContainer = 64;

  /// `descriptors`: for all files together.
  explicit LibraryRoom(std::size_t descriptors) : descriptors_(descriptors) {}

  /// An index, never 0. An error: the container's share, or all there is, is in use.
  Result<std::uint32_t> take(model::CgroupId container, std::size_t descriptors);
  void give_back(std::uint32_t index);

 private:
  struct Held {
    model::CgroupId container;
    std::size_t descriptors;
  };
  struct Used {
    std::size_t files = 0, descriptors = 0;
  };
  Status allows(const Used& used, std::size_t descriptors) const;

  const std::size_t descriptors_;
  std::unordered_map<std::uint32_t, Held> held_;
  std::map<model::CgroupId, Used> used_;
  std::size_t descriptors_used_ = 0;
  std::uint32_t next_ = 1;  ///< the lowest index that was never used
  std::deque<std::uint32_t> free_;
};

/// Descriptors that this process may still open for libraries: its limit, less what everything else needs.
std::size_t descriptors_for_libraries();

}  // namespace ingero::app
