// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <unordered_map>

#include "bpf/wire.h"
#include "model/bpf_handles.h"

namespace ingero::collect {

/// What the agent has deleted of the tables that containers share. The programs count the entries that they
/// make and delete themselves (bpf/share.h).
class TableShares {
 public:
  explicit TableShares(const model::BpfHandles& handles) : handles_(handles) {}

  /// Deletes an entry that a cgroup has in a table, and gives its room back; false: it was gone.
  template <typename Key>
  bool remove(int map, shared_table table, const Key& key, std::uint64_t cgroup) {
    return remove_entry(map, table, &key, cgroup);
  }

  /// As remove(), and tells what the entry held at that moment.
  template <typename Key, typename Value>
  bool take(int map, shared_table table, const Key& key, std::uint64_t cgroup, Value& value) {
    return take_entry(map, table, &key, cgroup, &value);
  }

  /// Forgets cgroups without entries.
  void prune();

 private:
  bool remove_entry(int map, shared_table table, const void* key, std::uint64_t cgroup);
  bool take_entry(int map, shared_table table, const void* key, std::uint64_t cgroup, void* value);
  void give_back(shared_table table, std::uint64_t cgroup);

  model::BpfHandles handles_;
  std::unordered_map<std::uint64_t, table_share> returned_;
};

}  // namespace ingero::collect
