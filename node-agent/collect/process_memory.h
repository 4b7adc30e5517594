// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ingero::collect {

/// What can be read of a process's memory from `address` on, at most `size` bytes. May take for ever: a
/// page may be one of a file of the process's own file system. So never outside of a DeadlineWorker.
std::vector<char> read_process_memory(std::uint32_t pid, std::uint64_t address, std::size_t size);

}  // namespace ingero::collect
