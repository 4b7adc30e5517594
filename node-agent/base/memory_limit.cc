// SPDX-License-Identifier: Apache-2.0
#include "base/memory_limit.h"

#include <fstream>

namespace ingero {

std::optional<std::uint64_t> container_memory_limit(const std::string& root) {
  // Where nothing limits it, v2 has "max" and v1 a number near the largest.
  constexpr std::uint64_t kNone = std::uint64_t{1} << 60;
  for (const char* name : {"/memory.max", "/memory/memory.limit_in_bytes"}) {
    std::ifstream file(root + name);
    std::uint64_t bytes = 0;
    if (file >> bytes && bytes < kNone) return bytes;
  }
  return std::nullopt;
}

}  // namespace ingero
