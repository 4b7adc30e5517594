// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <unordered_set>
#include <utility>

#include "model/snapshot.h"

namespace ingero::collect {

/// Keeps the codes of a container's errors a closed set, whatever numbers its processes return: the
/// first 32 of a function in a cgroup stay what they are, so that counters never move, and the rest is
/// model::kOtherErrorCode. A tenant that invents codes takes nobody else's room.
class ErrorCodes {
 public:
  static constexpr std::size_t kMaxPerFunction = 32;

  /// The code under which an error is counted.
  std::int32_t admit(std::uint64_t cgroup, std::uint16_t function, std::int32_t code);

  void forget(const std::unordered_set<model::CgroupId, model::IdentityHash>& cgroups);

 private:
  std::map<std::pair<std::uint64_t, std::uint16_t>, std::set<std::int32_t>> admitted_;
};

}  // namespace ingero::collect
