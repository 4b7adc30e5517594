// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <tuple>
#include <unordered_set>
#include <utility>
#include <vector>

#include "bpf/wire.h"
#include "model/snapshot.h"

namespace ingero::collect {

/// What communicators that are gone have counted, under the labels that they had. Several communicators
/// share labels where the id or the rank is not known; what one of them has counted stays counted.
class EndedCommunicators {
 public:
  /// Labels that are kept of a cgroup; the oldest go first. A library draws ids at random, so a
  /// communicator that comes back after so many others is made up.
  static constexpr std::size_t kMaxPerCgroup = 1024;

  /// The communicators are read anew: begin(), seen() for each, finish().
  void begin() { ++round_; }
  void seen(const comm_key& key, const comm_info& info, std::int32_t rank);
  /// Those that were not seen again are gone; their last increments come with their event.
  void finish();

  /// Gone for good; `info` has its last count.
  void ended(const comm_key& key, const comm_info& info, std::int32_t rank);

  void forget(const std::unordered_set<model::CgroupId, model::IdentityHash>& cgroups);
  void fill(std::vector<model::EndedCollectives>& rows) const;

 private:
  // handle, start of the process, tgid, exec, time of creation
  using Identity =
      std::tuple<std::uint64_t, std::uint64_t, std::uint32_t, std::uint32_t, std::uint64_t>;
  using Labels = std::pair<std::uint64_t, std::int32_t>;  // hash of the id, rank
  struct Live {
    std::uint64_t cgroup = 0;
    Labels labels;
    std::uint64_t collectives = 0;
    std::uint64_t round = 0;  ///< 0: gone, its event may still come
  };
  struct Kept {
    std::map<Labels, std::uint64_t> collectives;
    std::deque<Labels> oldest;
  };

  static Identity identity_of(const comm_key& key, const comm_info& info);
  void add(std::uint64_t cgroup, const Labels& labels, std::uint64_t collectives);

  std::map<Identity, Live> live_;
  std::deque<Identity> waiting_;        ///< of those in live_ that are gone, oldest first
  std::map<std::uint64_t, Kept> kept_;  ///< by cgroup
  std::uint64_t round_ = 0;
};

}  // namespace ingero::collect
