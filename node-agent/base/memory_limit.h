// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace ingero {

/// Bytes that the container of this process may use, by the cgroup tree below `root`; nullopt: no limit, or
/// none that can be read.
std::optional<std::uint64_t> container_memory_limit(const std::string& root = "/sys/fs/cgroup");

}  // namespace ingero
