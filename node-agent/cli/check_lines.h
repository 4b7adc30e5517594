// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "cli/host_check.h"

namespace ingero::cli {

// Parts of check_host() that make several lines each.

/// uprobe_multi exists from here on: attaching without CAP_SYS_ADMIN.
inline constexpr KernelVersion kMultiKernel{6, 6};

/// A capability's number (linux/capability.h), for holds().
inline constexpr unsigned kSysAdmin = 21;

/// `bits` as /proc/PID/status shows them.
inline bool holds(std::uint64_t bits, unsigned capability) { return (bits >> capability & 1) != 0; }

/// The mode (privileged or not) and a line for each capability that is missed. `methods` may show
/// that a method works although the rules say that it should not.
std::vector<CheckLine> capability_lines(const HostFacts& facts,
                                        const std::vector<AttachMethodResult>& methods);

/// One line per method. A method that fails is only a problem when no better one works.
std::vector<CheckLine> method_lines(const std::vector<AttachMethodResult>& methods);

/// One line per process that maps traced libraries, at most kMaxProcessLines, and one per library
/// that was refused.
std::vector<CheckLine> library_lines(const model::Snapshot& snapshot);
inline constexpr std::size_t kMaxProcessLines = 20;

}  // namespace ingero::cli
