// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "export/family_set.h"
#include "export/workload_sums.h"
#include "model/snapshot.h"

namespace ingero::exporting {

/// Series of single processes and communicators: their labels name something that comes and goes,
/// so they are the first to give way to the series budget.
struct LoadedLibrary {
  std::size_t workload = 0;  ///< index in the WorkloadTable
  std::string pid;
  std::string comm;
  std::string path;
  std::string version;
};

struct CommunicatorRow {
  std::size_t workload = 0;
  std::string comm_id;  ///< 16 hex digits; empty: not known
  std::string rank;     ///< empty: not known
  std::uint64_t collectives = 0;
  std::int64_t last_enqueue_unix_ns = 0;  ///< 0: none
  std::int64_t created_unix_ns = 0;
  /// comm_name, nranks, libnccl_version; more than one if communicators share id and rank.
  std::vector<std::array<std::string, 3>> infos;

  std::size_t series() const { return infos.size() + 1 + (last_enqueue_unix_ns != 0 ? 1 : 0); }
};

/// Oldest first, no two with equal labels.
struct Roster {
  std::vector<LoadedLibrary> libraries;
  std::vector<CommunicatorRow> communicators;
};

/// Also counts the NCCL processes of each workload into `sums` (one entry per workload of `table`).
Roster make_roster(const model::Snapshot& snapshot, const WorkloadTable& table,
                   std::vector<WorkloadSums>& sums);

/// Adds the series of the roster, at most `room` lines, none for workloads that are `folded`. The
/// collectives of communicators left out are summed in one series of container "other". Returns the
/// number of lines left out.
std::size_t add_roster(const Roster& roster, const WorkloadTable& table,
                       const std::vector<bool>& folded, std::size_t room, FamilySet& families);

}  // namespace ingero::exporting
