// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

namespace ingero::collect {

struct CommRanks {
  std::int32_t rank = -1;
  std::uint32_t nranks = 0;

  bool operator==(const CommRanks&) const = default;
};

/// Where struct ncclComm keeps what is looked for.
struct CommStructure {
  std::uint32_t rank_offset = 0;       ///< nRanks follows it; commHash, 8 bytes, stands before it
  std::uint32_t end_magic_offset = 0;  ///< of its last word; 0: it has none, or it is not known

  bool operator==(const CommStructure&) const = default;
};

/// Of an NCCL release on x86-64; nullopt for releases that are not in the table. A build that says it
/// is this release may have been changed: a hint, until it was compared with arguments.
std::optional<CommStructure> known_structure(std::string_view nccl_version);

/// commHash, rank and nRanks as they stand in memory.
inline constexpr std::size_t kRanksWindow = 16;  ///< bytes, from 8 before rank

/// nullopt: no communicator looks like this.
std::optional<CommRanks> ranks_in_window(const char* window);

/// Nothing has been written there yet: the communicator is being made.
bool is_empty_window(const char* window);

/// Every place in a communicator's memory that looks like this rank and size.
std::vector<std::uint32_t> places_of_ranks(const std::vector<char>& memory,
                                           const CommRanks& expected);

/// Finds the place that holds rank and size in several communicators: small numbers stand everywhere,
/// so one communicator proves nothing.
class CommSamples {
 public:
  /// A communicator with these ranks has them at one of these places.
  void add(const CommRanks& ranks, const std::vector<std::uint32_t>& places);
  /// The one place that is left; nullopt: too few samples, or more than one place.
  std::optional<std::uint32_t> place() const;
  std::size_t size() const { return count_; }

 private:
  std::vector<std::uint32_t> places_;  ///< sorted
  std::set<std::pair<std::int32_t, std::uint32_t>> ranks_;
  std::size_t count_ = 0;
};

}  // namespace ingero::collect
