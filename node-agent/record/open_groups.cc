// SPDX-License-Identifier: Apache-2.0
#include "record/open_groups.h"

#include <algorithm>
#include <utility>

namespace ingero::record {

void OpenGroups::add(const call_event& call, std::int64_t row) {
  if (rows_ >= max_rows_) forget_largest_cgroup();
  Group& group = groups_[thread_of(call)];
  if (group.number != call.group || group.cgroup != call.header.cgroup_id) {
    // The end of the group before was lost, or its thread has moved: nobody tells its end any more.
    rows_ -= group.rows.size();
    group = {call.group, call.header.cgroup_id, {}};
  }
  group.rows.push_back(row);
  ++rows_;
}

std::vector<std::int64_t> OpenGroups::end(const call_event& call) {
  const auto found = groups_.find(thread_of(call));
  if (found == groups_.end()) return {};
  Group group = std::move(found->second);
  groups_.erase(found);
  rows_ -= group.rows.size();
  if (group.number != call.group) return {};
  return std::move(group.rows);
}

void OpenGroups::forget_largest_cgroup() {
  std::unordered_map<std::uint64_t, std::size_t> sizes;
  for (const auto& [thread, group] : groups_) sizes[group.cgroup] += group.rows.size();
  const auto largest = std::max_element(
      sizes.begin(), sizes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  if (largest == sizes.end()) return;
  rows_ -= largest->second;
  std::erase_if(groups_, [&](const auto& item) { return item.second.cgroup == largest->first; });
}

}  // namespace ingero::record
