// SPDX-License-Identifier: Apache-2.0
#include "collect/ended_communicators.h"

#include <algorithm>

namespace ingero::collect {
namespace {

constexpr std::size_t kMaxWaiting = 4096;  // gone, and their event has not come

}  // namespace

EndedCommunicators::Identity EndedCommunicators::identity_of(const comm_key& key,
                                                             const comm_info& info) {
  return {key.comm, key.process_start_ns, key.tgid, key.exec_id, info.created_ns};
}

void EndedCommunicators::add(std::uint64_t cgroup, const Labels& labels,
                             std::uint64_t collectives) {
  Kept& kept = kept_[cgroup];
  const auto [place, added] = kept.collectives.try_emplace(labels, 0);
  place->second += collectives;
  if (!added) return;
  kept.oldest.push_back(labels);
  if (kept.oldest.size() <= kMaxPerCgroup) return;
  kept.collectives.erase(kept.oldest.front());
  kept.oldest.pop_front();
}

void EndedCommunicators::seen(const comm_key& key, const comm_info& info, std::int32_t rank) {
  Live& live = live_[identity_of(key, info)];
  const Labels labels{info.id_hash, rank};
  // Its rank has become known: what it counted under the old labels stays there.
  const bool renamed = live.round != 0 && live.labels != labels;
  if (renamed) add(live.cgroup, live.labels, live.collectives);
  live = {info.cgroup_id, labels, info.collectives, round_};
}

void EndedCommunicators::finish() {
  for (auto& [identity, live] : live_) {
    if (live.round == round_ || live.round == 0) continue;
    add(live.cgroup, live.labels, live.collectives);
    live.round = 0;
    waiting_.push_back(identity);
  }
  for (; waiting_.size() > kMaxWaiting; waiting_.pop_front()) {
    const auto found = live_.find(waiting_.front());
    if (found != live_.end() && found->second.round == 0) live_.erase(found);
  }
}

void EndedCommunicators::ended(const comm_key& key, const comm_info& info, std::int32_t rank) {
  const auto found = live_.find(identity_of(key, info));
  if (found == live_.end()) {  // nobody has read it while it lived
    add(info.cgroup_id, {info.id_hash, rank}, info.collectives);
    return;
  }
  const Live& live = found->second;
  // Where it is counted already, only what came after the last look is new.
  const std::uint64_t counted = live.round == 0 ? live.collectives : 0;
  add(live.cgroup, live.labels,
      info.collectives - std::min<std::uint64_t>(counted, info.collectives));
  live_.erase(found);
}

void EndedCommunicators::forget(
    const std::unordered_set<model::CgroupId, model::IdentityHash>& cgroups) {
  for (const model::CgroupId cgroup : cgroups) kept_.erase(to_number(cgroup));
}

void EndedCommunicators::fill(std::vector<model::EndedCollectives>& rows) const {
  for (const auto& [cgroup, kept] : kept_) {
    for (const auto& [labels, collectives] : kept.collectives)
      rows.push_back(
          {static_cast<model::CgroupId>(cgroup), labels.first, labels.second, collectives});
  }
}

}  // namespace ingero::collect
