// SPDX-License-Identifier: Apache-2.0
#include "collect/comm_structure.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>

namespace ingero::collect {
namespace {

constexpr std::uint32_t kMaxRanks = 1 << 22;
constexpr std::size_t kSamples = 3;       // that must agree
constexpr std::size_t kDifferent = 2;     // of them with other ranks or another size
constexpr std::size_t kMaxPlaces = 1024;  // in one communicator; more say nothing

struct Release {
  std::string_view version;
  CommStructure structure;
};

/// offsetof, compiled against each release's headers; the word at the end exists since 2.21.
[[maybe_unused]] constexpr std::array kReleases = {
    Release{"2.12.12", {16432, 0}},        Release{"2.14.3", {6064, 0}},
    Release{"2.17.1", {7608, 0}},          Release{"2.18.1", {9176, 0}},
    Release{"2.18.3", {9176, 0}},          Release{"2.18.5", {9176, 0}},
    Release{"2.18.6", {9432, 0}},          Release{"2.19.3", {9432, 0}},
    Release{"2.19.4", {9432, 0}},          Release{"2.20.3", {10456, 0}},
    Release{"2.20.5", {10456, 0}},         Release{"2.21.5", {13536, 16280}},
    Release{"2.22.3", {213584, 219512}},   Release{"2.23.4", {246952, 253144}},
    Release{"2.24.3", {246952, 252616}},   Release{"2.25.1", {492712, 501064}},
    Release{"2.26.2", {492728, 506744}},   Release{"2.26.3", {492728, 506744}},
    Release{"2.26.5", {492728, 506744}},   Release{"2.26.6", {492728, 506744}},
    Release{"2.27.3", {1066168, 1080312}}, Release{"2.27.5", {1066168, 1080312}},
    Release{"2.27.6", {1066168, 1080312}}, Release{"2.27.7", {1066168, 1080312}},
    Release{"2.28.3", {1066184, 1081808}}, Release{"2.28.7", {1066192, 1082960}},
    Release{"2.28.9", {1066192, 1082960}}, Release{"2.29.2", {1066712, 1084800}},
    Release{"2.29.3", {1066712, 1084800}}, Release{"2.29.7", {1181400, 1199584}},
    Release{"2.30.3", {1181408, 1199720}}, Release{"2.30.4", {1181408, 1199720}},
    Release{"2.30.7", {1181424, 1199736}},
};

struct Window {
  std::uint32_t hash_low;
  std::uint32_t hash_high;
  std::int32_t rank;
  std::uint32_t nranks;
};
static_assert(sizeof(Window) == kRanksWindow);

Window window_at(const char* bytes) {
  Window window;
  std::memcpy(&window, bytes, sizeof(window));
  return window;
}

/// A 64-bit hash is not two small numbers, as rank and size themselves are, or a 0.
bool may_be_hash(const Window& window) {
  return window.hash_low > kMaxRanks || window.hash_high > kMaxRanks;
}

bool plausible(const CommRanks& ranks) {
  return ranks.nranks > 0 && ranks.nranks <= kMaxRanks && ranks.rank >= 0 &&
         static_cast<std::uint32_t>(ranks.rank) < ranks.nranks;
}

}  // namespace

std::optional<CommStructure> known_structure(std::string_view nccl_version) {
#if defined(__x86_64__)
  for (const Release& release : kReleases) {
    if (release.version == nccl_version) return release.structure;
  }
#else
  static_cast<void>(nccl_version);  // the table holds for x86-64
#endif
  return std::nullopt;
}

std::optional<CommRanks> ranks_in_window(const char* bytes) {
  const Window window = window_at(bytes);
  const CommRanks ranks{window.rank, window.nranks};
  if (!plausible(ranks) || !may_be_hash(window)) return std::nullopt;
  return ranks;
}

bool is_empty_window(const char* bytes) {
  const Window window = window_at(bytes);
  return window.rank == 0 && window.nranks == 0;
}

std::vector<std::uint32_t> places_of_ranks(const std::vector<char>& memory,
                                           const CommRanks& expected) {
  std::vector<std::uint32_t> places;
  if (!plausible(expected)) return places;
  for (std::size_t at = 0; at + kRanksWindow <= memory.size(); at += 8) {
    if (ranks_in_window(memory.data() + at) != expected) continue;
    if (places.size() == kMaxPlaces) return {};
    places.push_back(static_cast<std::uint32_t>(at + 8));
  }
  return places;
}

void CommSamples::add(const CommRanks& ranks, const std::vector<std::uint32_t>& places) {
  if (places.empty()) return;
  std::vector<std::uint32_t> common;
  std::set_intersection(places_.begin(), places_.end(), places.begin(), places.end(),
                        std::back_inserter(common));
  if (common.empty()) {  // the first one, or what came before was something else
    *this = {};
    common = places;
  }
  places_ = std::move(common);
  ranks_.emplace(ranks.rank, ranks.nranks);
  ++count_;
}

std::optional<std::uint32_t> CommSamples::place() const {
  if (count_ < kSamples || ranks_.size() < kDifferent || places_.size() != 1) return std::nullopt;
  return places_.front();
}

}  // namespace ingero::collect
