// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "model/bpf_handles.h"

namespace ingero::collect {

struct CommRanks {
  std::int32_t rank = -1;
  std::uint32_t nranks = 0;
};

/// Offset of `rank` in struct ncclComm (nRanks follows it) of an NCCL release, x86-64; nullopt for
/// releases that are not in the table. Source: offsetof compiled against each release's headers.
std::optional<std::uint32_t> known_rank_offset(std::string_view nccl_version);

/// Where each library file keeps rank and size in its communicators: from the table of releases, or
/// found in the first communicator whose rank, size and id the arguments told. Thread safe.
class CommLayouts {
 public:
  explicit CommLayouts(const model::BpfHandles& handles) : handles_(handles) {}

  /// A library was attached under `index`.
  void add_library(std::uint32_t index, std::string_view nccl_version);

  /// Searches a finished communicator for its own rank and size behind its id's first 8 bytes. Does
  /// nothing when the layout is known. Returns whether it is known now.
  bool calibrate(std::uint32_t index, std::uint32_t pid, std::uint64_t comm, CommRanks expected);

  /// Rank and size read from the process's memory; nullopt: layout unknown, or implausible values.
  std::optional<CommRanks> read(std::uint32_t index, std::uint32_t pid, std::uint64_t comm) const;

 private:
  void publish(std::uint32_t index, std::uint32_t rank_offset);
  std::optional<std::uint32_t> offset_of(std::uint32_t index) const;

  model::BpfHandles handles_;
  mutable std::mutex mutex_;
  std::unordered_map<std::uint32_t, std::uint32_t> offsets_;  ///< library index -> rank offset
};

}  // namespace ingero::collect
