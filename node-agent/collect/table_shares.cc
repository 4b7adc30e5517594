// SPDX-License-Identifier: Apache-2.0
#include "collect/table_shares.h"

#include <bpf/bpf.h>

#include <algorithm>
#include <vector>

#include "collect/bpf_map.h"

namespace ingero::collect {

bool TableShares::remove_entry(int map, shared_table table, const void* key, std::uint64_t cgroup) {
  if (bpf_map_delete_elem(map, key) != 0)
    return false;  // a program was faster, and has given it back
  give_back(table, cgroup);
  give_back(table, ALL_CGROUPS);
  return true;
}

bool TableShares::take_entry(int map, shared_table table, const void* key, std::uint64_t cgroup,
                             void* value) {
  if (bpf_map_lookup_and_delete_elem(map, key, value) != 0) return false;
  give_back(table, cgroup);
  give_back(table, ALL_CGROUPS);
  return true;
}

void TableShares::give_back(shared_table table, std::uint64_t cgroup) {
  table_share& share = returned_[cgroup];
  ++share.entries[table];
  bpf_map_update_elem(handles_.shares_returned, &cgroup, &share, BPF_ANY);
}

void TableShares::prune() {
  std::vector<std::uint64_t> unused;
  for_each_entry<std::uint64_t, table_share>(
      handles_.shares, [&](std::uint64_t cgroup, const table_share& made) {
        const table_share& given = returned_[cgroup];
        if (cgroup != ALL_CGROUPS &&
            std::equal(std::begin(made.entries), std::end(made.entries), given.entries))
          unused.push_back(cgroup);
      });
  for (const std::uint64_t cgroup : unused) {
    bpf_map_delete_elem(handles_.shares, &cgroup);
    bpf_map_delete_elem(handles_.shares_returned, &cgroup);
    returned_.erase(cgroup);
  }
}

}  // namespace ingero::collect
