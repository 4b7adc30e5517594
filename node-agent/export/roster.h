// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "export/family_set.h"
#include "export/series_budget.h"
#include "export/split_sum.h"
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
  bool live = true;  ///< false: only what is left of communicators that are gone

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

/// Writes the series of rosters, and remembers which collectives were told under `comm_id="other"`, so
/// that neither they nor a communicator's own ever fall. Not thread safe.
class RosterSeries {
 public:
  /// Adds the series of the roster, as far as there is room, none for workloads that are `folded`. The
  /// room is shared by turns: a series of each container, then the next of each. Collectives of
  /// communicators left out are summed in one series of container "other". Returns the number of lines
  /// left out.
  std::size_t add(const Roster& roster, const WorkloadTable& table, const std::vector<bool>& folded,
                  SeriesRoom& room, FamilySet& families);

 private:
  struct Collectives {
    std::uint64_t count = 0;
    void add(const Collectives& other) { count += other.count; }
    void subtract(const Collectives& other) { count -= std::min(count, other.count); }
  };
  struct Account {
    SplitSum<Collectives> split;
    std::uint64_t round = 0;
  };
  // namespace, pod, container, comm_id, rank
  using Key = std::tuple<std::string, std::string, std::string, std::string, std::string>;

  Account& account_of(const CommunicatorRow& row, const WorkloadTable& table);
  void fold(const CommunicatorRow& row, const WorkloadTable& table, CommunicatorRow& rest);

  std::map<Key, Account> accounts_;
  Collectives other_;  ///< all that was ever told under "other"
  std::uint64_t round_ = 0;
};

}  // namespace ingero::exporting
