// SPDX-License-Identifier: Apache-2.0
#include "record/collective_matcher.h"

#include <algorithm>
#include <set>

namespace ingero::record {
namespace {

// A rank that is this many collectives behind is not waited for.
constexpr std::size_t kMaxOpen = 1 << 16;

}  // namespace

CollectiveMatcher::CollectiveMatcher(const CallScan& scan,
                                     std::function<void(const MatchedCollective&)> on_match)
    : on_match_(std::move(on_match)), open_of_(scan.context_count()) {
  std::map<std::string, std::set<std::int32_t>> ranks;
  for (const auto& contexts : scan.contexts())
    for (const auto& [id, context] : contexts)
      if (context.rank && !context.comm_id_hash.empty())
        ranks[context.comm_id_hash].insert(*context.rank);
  for (const auto& [hash, members] : ranks)
    if (members.size() > 1) ranks_[hash] = open_[hash].ranks = members.size();
  for (const auto& contexts : scan.contexts())
    for (const auto& [id, context] : contexts)
      if (const auto open = open_.find(context.comm_id_hash); context.rank && open != open_.end())
        open_of_[context.index] = {&open->first, &open->second};
}

void CollectiveMatcher::add(const ScannedCall& call) {
  if (call.sequence <= 0) return;
  const auto [hash, open] = open_of_[call.context->index];
  if (open == nullptr) return;
  if (open->collectives.size() >= kMaxOpen) {
    given_up_ += open->collectives.size();
    open->collectives.clear();
  }
  std::vector<ScannedCall>& calls = open->collectives[call.sequence];
  if (calls.empty()) calls.reserve(open->ranks);
  for (const ScannedCall& other : calls)
    if (other.context->rank == call.context->rank) return;  // not one collective after all
  calls.push_back(call);
  if (calls.size() < open->ranks) return;
  const bool same = std::all_of(calls.begin(), calls.end(), [&](const ScannedCall& other) {
    return other.context->op == call.context->op;
  });
  if (same) on_match_({*hash, call.sequence, std::move(calls)});
  else ++mismatched_;
  open->collectives.erase(call.sequence);
}

std::uint64_t CollectiveMatcher::incomplete() const {
  std::uint64_t count = given_up_;
  for (const auto& [hash, open] : open_) count += open.collectives.size();
  return count;
}

}  // namespace ingero::record
