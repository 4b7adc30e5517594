// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/container_name.h"
#include "model/snapshot.h"

namespace ingero::cli {

/// A snapshot and when it was made. The rates need a clock that nobody sets, which unix_ns is not.
struct TimedSnapshot {
  const model::Snapshot* snapshot = nullptr;  ///< nullptr: there is none yet
  std::uint64_t monotonic_ns = 0;
};

/// One operation (and copy direction) of one process in one container.
struct LiveRow {
  std::string container;  ///< full label, as the lookup gave it
  model::CgroupId cgroup = model::CgroupId::kUnknown;
  model::ProcessKey process;  ///< tgid 0: processes that have ended
  std::string comm;           ///< empty: not known
  std::string library;        ///< "nccl 2.28.9"
  std::string operation;      ///< "ncclAllReduce", "cudaMemcpyAsync h2d"
  std::uint64_t calls = 0;    ///< since the agent started, as errors and bytes
  std::uint64_t errors = 0;
  std::uint64_t bytes = 0;
  std::uint64_t interval_calls = 0;   ///< between the two snapshots
  std::optional<double> calls_per_s;  ///< nullopt: there is no interval
  std::optional<double> bytes_per_s;
  std::optional<double> p50_ns;  ///< host duration in the interval; nullopt: no call ended
  std::optional<double> p99_ns;
};

/// The rows of `current`, with rates from the difference to `previous` (whose snapshot may be
/// nullptr). Calls of processes that ended meanwhile are in both: their totals moved to the row of
/// the ended ones of their container, which is not shown as new calls.
///
/// Order: containers, in them processes, in them operations, each by calls per second in steps of a
/// factor of four, highest first, then by name. The steps keep rows in place while rates fluctuate.
std::vector<LiveRow> live_rows(const TimedSnapshot& previous, const TimedSnapshot& current,
                               const ContainerLabel& container_of);

}  // namespace ingero::cli
