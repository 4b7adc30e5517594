// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "record/call_scan.h"

namespace ingero::record {

/// One collective, as the ranks that were recorded called it, in the order of time.
struct MatchedCollective {
  std::string comm_id_hash;
  std::int64_t sequence = 0;
  std::vector<ScannedCall> calls;
};

/// Puts the ranks' calls of one collective together by communicator and sequence number.
class CollectiveMatcher {
 public:
  /// `on_match` gets each collective that all recorded ranks of its communicator have called.
  CollectiveMatcher(const CallScan& scan, std::function<void(const MatchedCollective&)> on_match);

  void add(const ScannedCall& call);

  /// Recorded ranks of each communicator that has at least two of them.
  const std::map<std::string, std::size_t>& communicators() const { return ranks_; }
  /// Collectives that not all of those ranks were seen to call.
  std::uint64_t incomplete() const;
  /// Collectives of which not all ranks called the same operation: numbers that do not belong together.
  std::uint64_t mismatched() const { return mismatched_; }

 private:
  struct Open {
    std::unordered_map<std::int64_t, std::vector<ScannedCall>> collectives;  ///< by sequence
    std::size_t ranks = 0;
  };
  std::function<void(const MatchedCollective&)> on_match_;
  std::map<std::string, std::size_t> ranks_;
  std::vector<std::pair<const std::string*, Open*>> open_of_;  ///< by index of the context
  std::map<std::string, Open> open_;
  std::uint64_t given_up_ = 0, mismatched_ = 0;
};

}  // namespace ingero::record
