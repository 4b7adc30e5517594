// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "model/snapshot.h"

namespace ingero::attach {

/// The programs of one family of functions, as descriptors; those that the method does not use are -1.
struct ProgramSet {
  int entry = -1;
  int on_return = -1;
  int session = -1;
};

/// Where one function is probed, and the cookie its program gets.
struct ProbeTarget {
  std::uint64_t offset = 0;  ///< in the file
  std::uint64_t cookie = 0;
};

/// Probes on functions of one file; closing the descriptors removes them.
class UprobeLink {
 public:
  /// Attaches to all `targets` of the file behind `path` for every process on the host, or to none.
  /// Return probes come first, so that no call is seen to begin that is not seen to end.
  /// Errors: EPERM (capabilities), EINVAL (method unknown to this kernel), ENOTSUPP (524: the
  /// instruction can't be probed).
  static Result<UprobeLink> create(model::AttachMethod method, const ProgramSet& programs,
                                   const std::string& path, std::span<const ProbeTarget> targets);

  /// Programs no longer run when `links` are closed; the breakpoints go with `events`, which takes long.
  struct Descriptors {
    std::vector<UniqueFd> links;
    std::vector<UniqueFd> events;  ///< of perf probes
  };
  /// Gives up the descriptors; the probes go when they are closed.
  Descriptors release() { return std::move(fds_); }

 private:
  explicit UprobeLink(Descriptors fds) : fds_(std::move(fds)) {}

  Descriptors fds_;
};

}  // namespace ingero::attach
