// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bpf/bpf.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <vector>

namespace ingero::collect {

/// Calls `visit(key, value)` for every entry of a BPF hash map, read in batches. Entries that change
/// meanwhile are seen with their old or new value; each entry that is there all the time is seen.
template <typename Key, typename Value, typename Visit>
void for_each_entry(int fd, Visit&& visit) {
  std::uint32_t batch_size = 256;
  std::vector<Key> keys(batch_size);
  std::vector<Value> values(batch_size);
  std::uint64_t position[2] = {};  // opaque to us: the kernel's place in the map
  bool first = true;
  while (true) {
    std::uint32_t count = batch_size;
    const int code = bpf_map_lookup_batch(fd, first ? nullptr : position, position, keys.data(),
                                          values.data(), &count, nullptr);
    if (code != 0 && errno == ENOSPC) {  // one bucket holds more than a batch
      batch_size *= 2;
      keys.resize(batch_size);
      values.resize(batch_size);
      continue;
    }
    const bool last = code != 0;
    if (last && errno != ENOENT) return;
    for (std::uint32_t i = 0; i < count; ++i) visit(keys[i], values[i]);
    if (last) return;
    first = false;
  }
}

}  // namespace ingero::collect
