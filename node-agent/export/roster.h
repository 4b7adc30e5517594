// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
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

/// The live communicators with these labels, and what those have counted that are gone.
struct CommunicatorRow {
  std::size_t workload = 0;
  std::uint64_t id_hash = 0;  ///< 0: not known
  std::int32_t rank = -1;     ///< -1: not known
  std::uint64_t collectives = 0;
  std::int64_t last_enqueue_unix_ns = 0;  ///< 0: none
  std::int64_t created_unix_ns = 0;
  std::vector<const model::Communicator*> members;  ///< of the snapshot
  std::size_t infos = 1;  ///< how many of them differ in their other labels

  std::size_t series() const { return infos + 1 + (last_enqueue_unix_ns != 0 ? 1 : 0); }
};

/// Labels of a communicator in numbers: there may be a hundred thousand that are gone, which need no text.
struct CommunicatorLabels {
  std::size_t workload = 0;
  std::uint64_t id_hash = 0;
  std::int32_t rank = -1;
  bool operator==(const CommunicatorLabels&) const = default;
};
struct CommunicatorLabelsHash {
  std::size_t operator()(const CommunicatorLabels& labels) const {
    return model::IdentityHash::mix(labels.id_hash, (std::uint64_t{labels.workload} << 32) ^
                                                        static_cast<std::uint32_t>(labels.rank));
  }
};

/// Oldest first, no two with equal labels.
struct Roster {
  std::vector<LoadedLibrary> libraries;
  std::vector<CommunicatorRow> communicators;
  /// Of which no live communicator has the labels.
  std::vector<std::pair<CommunicatorLabels, std::uint64_t>> gone;
};

/// Also counts the NCCL processes of each workload into `sums` (one entry per workload of `table`). Valid as long
/// as the snapshot is.
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
  using Name = std::tuple<std::string, std::string, std::string>;  // namespace, pod, container

  void name_workloads(const WorkloadTable& table);
  Account* find_account(CommunicatorLabels labels);
  Account& account_of(const CommunicatorRow& row);
  void fold_gone(const Roster& roster, const WorkloadTable& table);

  std::map<Name, std::size_t>
      names_;  ///< a number for each workload, which its accounts are kept by
  std::size_t last_name_ = 0;
  std::vector<std::size_t> name_of_;  ///< by index in the table of this scrape
  std::unordered_map<CommunicatorLabels, Account, CommunicatorLabelsHash> accounts_;
  Collectives other_;  ///< all that was ever told under "other"
  std::uint64_t round_ = 0;
};

}  // namespace ingero::exporting
