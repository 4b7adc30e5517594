// SPDX-License-Identifier: Apache-2.0
#include "collect/comm_layout.h"

#include <bpf/bpf.h>
#include <sys/uio.h>

#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "bpf/wire.h"

namespace ingero::collect {
namespace {

constexpr std::uint32_t kMaxRanks = 1 << 22;
constexpr std::size_t kMaxCommBytes = 2 << 20;  // the largest struct ncclComm seen is 1.2 MB

struct Release {
  std::string_view version;
  std::uint32_t rank_offset;
};

[[maybe_unused]] constexpr std::array kReleases = {
    // for x86-64
    Release{"2.12.12", 16432},  Release{"2.14.3", 6064},    Release{"2.17.1", 7608},
    Release{"2.18.1", 9176},    Release{"2.18.3", 9176},    Release{"2.18.5", 9176},
    Release{"2.18.6", 9432},    Release{"2.19.3", 9432},    Release{"2.19.4", 9432},
    Release{"2.20.3", 10456},   Release{"2.20.5", 10456},   Release{"2.21.5", 13536},
    Release{"2.22.3", 213584},  Release{"2.23.4", 246952},  Release{"2.24.3", 246952},
    Release{"2.25.1", 492712},  Release{"2.26.2", 492728},  Release{"2.26.3", 492728},
    Release{"2.26.5", 492728},  Release{"2.26.6", 492728},  Release{"2.27.3", 1066168},
    Release{"2.27.5", 1066168}, Release{"2.27.6", 1066168}, Release{"2.27.7", 1066168},
    Release{"2.28.3", 1066184}, Release{"2.28.7", 1066192}, Release{"2.28.9", 1066192},
    Release{"2.29.2", 1066712}, Release{"2.29.3", 1066712}, Release{"2.29.7", 1181400},
    Release{"2.30.3", 1181408}, Release{"2.30.4", 1181408}, Release{"2.30.7", 1181424},
};

bool read_memory(std::uint32_t pid, std::uint64_t address, void* to, std::size_t size) {
  iovec local{to, size};
  iovec remote{reinterpret_cast<void*>(address), size};
  return ::process_vm_readv(static_cast<pid_t>(pid), &local, 1, &remote, 1, 0) ==
         static_cast<ssize_t>(size);
}

/// As much as can be read from `address` on, up to the largest communicator there is.
std::vector<char> read_comm(std::uint32_t pid, std::uint64_t address) {
  constexpr std::size_t kStep = 64 << 10;
  std::vector<char> bytes;
  while (bytes.size() < kMaxCommBytes) {
    const std::size_t at = bytes.size();
    bytes.resize(at + kStep);
    if (!read_memory(pid, address + at, bytes.data() + at, kStep)) {
      bytes.resize(at);
      break;
    }
  }
  return bytes;
}

bool plausible(const CommRanks& ranks) {
  return ranks.nranks > 0 && ranks.nranks <= kMaxRanks && ranks.rank >= 0 &&
         static_cast<std::uint32_t>(ranks.rank) < ranks.nranks;
}

CommRanks ranks_at(const char* bytes) {
  CommRanks ranks;
  std::memcpy(&ranks.rank, bytes, sizeof(ranks.rank));
  std::memcpy(&ranks.nranks, bytes + 4, sizeof(ranks.nranks));
  return ranks;
}

/// Offset of the one place that holds rank and size behind an 8-byte hash; nullopt if there is none
/// or more than one: a guess could be wrong.
std::optional<std::uint32_t> find_ranks(const std::vector<char>& bytes, const CommRanks& expected) {
  std::optional<std::uint32_t> found;
  for (std::size_t at = 8; at + 16 <= bytes.size(); at += 8) {
    const CommRanks here = ranks_at(bytes.data() + at);
    if (here.rank != expected.rank || here.nranks != expected.nranks) continue;
    std::uint64_t before = 0;
    std::memcpy(&before, bytes.data() + at - 8, sizeof(before));
    if ((before >> 32) == 0) continue;  // commHash is a 64-bit hash: its upper half is never 0 here
    if (found) return std::nullopt;
    found = static_cast<std::uint32_t>(at);
  }
  return found;
}

}  // namespace

std::optional<std::uint32_t> known_rank_offset(std::string_view nccl_version) {
#if defined(__x86_64__)
  for (const Release& release : kReleases) {
    if (release.version == nccl_version) return release.rank_offset;
  }
#else
  static_cast<void>(nccl_version);  // the table holds for x86-64
#endif
  return std::nullopt;
}

void CommLayouts::add_library(std::uint32_t index, std::string_view nccl_version) {
  if (index == 0) return;
  if (const auto offset = known_rank_offset(nccl_version)) publish(index, *offset);
}

std::optional<std::uint32_t> CommLayouts::offset_of(std::uint32_t index) const {
  const std::lock_guard lock(mutex_);
  const auto it = offsets_.find(index);
  if (it == offsets_.end()) return std::nullopt;
  return it->second;
}

void CommLayouts::publish(std::uint32_t index, std::uint32_t rank_offset) {
  {
    const std::lock_guard lock(mutex_);
    offsets_[index] = rank_offset;
  }
  const comm_layout layout{rank_offset, 0};
  bpf_map_update_elem(handles_.layouts, &index, &layout, BPF_ANY);
}

bool CommLayouts::calibrate(std::uint32_t index, std::uint32_t pid, std::uint64_t comm,
                            CommRanks expected) {
  if (index == 0) return false;
  if (offset_of(index)) return true;
  // Small numbers stand everywhere in the structure; one rank of one or two proves nothing.
  if (!plausible(expected)) return false;
  const auto offset = find_ranks(read_comm(pid, comm), expected);
  if (!offset) return false;
  publish(index, *offset);
  return true;
}

std::optional<CommRanks> CommLayouts::read(std::uint32_t index, std::uint32_t pid,
                                           std::uint64_t comm) const {
  const auto offset = offset_of(index);
  if (!offset) return std::nullopt;
  char bytes[8];
  if (!read_memory(pid, comm + *offset, bytes, sizeof(bytes))) return std::nullopt;
  const CommRanks ranks = ranks_at(bytes);
  if (!plausible(ranks)) return std::nullopt;
  return ranks;
}

}  // namespace ingero::collect
