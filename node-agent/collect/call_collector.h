// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/clock.h"
#include "bpf/wire.h"
#include "collect/comm_layout.h"
#include "collect/ended_communicators.h"
#include "collect/error_codes.h"
#include "collect/table_shares.h"
#include "model/bpf_handles.h"
#include "model/snapshot.h"

namespace ingero::collect {

/// Whose calls a row has: of all processes of a cgroup together, or each process its own. Processes have a
/// hundred counters each, of nearly a kilobyte.
enum class CallRows { by_cgroup, by_process };

/// Reads the counters of the BPF maps. What ended processes have counted is kept here per cgroup, and
/// their entries are freed, so that totals never go back and the maps never fill up with the dead.
class CallCollector {
 public:
  CallCollector(const model::BpfHandles& handles, const Clock& clock)
      : handles_(handles), clock_(clock), shares_(handles) {}

  /// A process that maps a traced library: its end will be reported.
  void watch_process(const model::ProcessKey& process) const;

  /// A process that will make no more calls. Its counters move to its cgroup at the next read.
  void process_ended(const model::ProcessKey& process) { ended_.insert(process); }

  /// A process has replaced its program: communicators of the old one are gone.
  void process_executed(const model::ProcessKey& process, std::uint32_t exec_id);

  /// A communicator was destroyed; `info` is its last state.
  void communicator_ended(const comm_key& key, const comm_info& info) {
    ended_comms_.ended(key, info, info.rank);
  }

  /// Fills in calls, errors, communicators and losses.
  void read(model::Snapshot& snapshot, CallRows rows = CallRows::by_cgroup);

  /// What cannot wait until somebody wants the counters, because it is asked of processes: communicators, whose
  /// ranks are read then, and segments that TCP sent again.
  void look(model::Snapshot& snapshot);

  /// Drops all that these cgroups have counted; their processes are gone.
  void forget(const std::unordered_set<model::CgroupId, model::IdentityHash>& cgroups);

  /// Whether anything was counted since the start.
  bool has_counted() const;

  /// The losses alone, which costs little.
  void read_losses(model::Snapshot& snapshot) const;

  /// Frees the entries of retransmissions that belong to nobody who is traced; `rows` as they were read.
  void drop_retransmits(const std::vector<model::RetransmitSeries>& rows) const;

  /// Rank and size of a communicator that the BPF side does not know; they come later than asked for.
  void set_resolver(CommLayouts* layouts) { layouts_ = layouts; }

  using Cgroups = std::unordered_set<model::CgroupId, model::IdentityHash>;
  /// Cgroups in which some process counts that had not ended at the last read, or look at processes().
  Cgroups living_cgroups() const;

  std::size_t ended_waiting() const { return ended_.size(); }

  /// Those that have counted something or are watched, and have not ended as far as anybody told. Does not
  /// read the counters, of which each process has a hundred: those of whom nobody else knows are of the
  /// last read.
  std::vector<model::ProcessKey> processes();

 private:
  using Place =
      std::tuple<std::uint64_t, std::uint16_t, std::uint16_t>;  // cgroup, function, direction
  using ErrorPlace = std::tuple<std::uint64_t, std::uint16_t, std::int32_t>;
  struct KeyHash {
    std::size_t operator()(const call_key& key) const;
  };
  struct SameKey {
    bool operator()(const call_key& a, const call_key& b) const;
  };
  model::CallTotals& row_of(call_key key, model::Snapshot& snapshot);
  void read_communicators(model::Snapshot& snapshot);
  void read_calls(model::Snapshot& snapshot);
  static std::uint64_t scaled(std::uint64_t bytes, std::uint64_t ranks);
  void read_unscaled(model::Snapshot& snapshot);
  void read_errors(model::Snapshot& snapshot);
  void read_retransmits(model::Snapshot& snapshot) const;
  void read_waits(model::Snapshot& snapshot);
  void free_ended();
  model::CallTotals& retired_row(const Place& place);
  void count_uncoded(const call_key& key, const call_stats& stats, bool ended);
  void bound_retired();
  void bound_waits();
  void free_ended_streams();
  void processes_changed() const;
  bool is_living(model::CgroupId cgroup) const {
    return living_.contains(cgroup) || calling_.contains(cgroup);
  }
  bool has_ended(std::uint32_t tgid, std::uint64_t start_ns) const {
    return ended_.contains({tgid, start_ns});
  }
  CommRanks ranks_of(const comm_key& key, const comm_info& info);
  CommRanks known_ranks(const comm_key& key, const comm_info& info) const;
  void free_communicators(const std::vector<std::pair<comm_key, comm_info>>& old);
  std::uint64_t size_of(const comm_key& key, bool& gone) const;

  model::BpfHandles handles_;
  const Clock& clock_;
  TableShares shares_;
  CommLayouts* layouts_ = nullptr;
  std::unordered_set<model::ProcessKey, model::IdentityHash> ended_;
  struct Retired {
    model::CallTotals totals;
    std::uint64_t changed = 0;  ///< round of reading in which it last grew
  };
  std::map<Place, Retired> retired_;
  std::map<ErrorPlace, std::uint64_t> retired_errors_;
  ErrorCodes error_codes_;
  std::uint64_t folded_codes_ = 0;  ///< of ended processes
  EndedCommunicators ended_comms_;
  std::map<ErrorPlace, std::uint64_t> uncoded_;  ///< errors of the living whose codes found no room
  std::map<std::uint64_t, model::WaitSeries> retired_waits_;  ///< by cgroup
  Cgroups living_;   ///< with counters of living processes at the last read
  Cgroups calling_;  ///< of living processes' first calls, at the last look
  std::unordered_set<model::ProcessKey, model::IdentityHash> counted_;  ///< alive at the last read
  CallRows call_rows_ = CallRows::by_cgroup;
  std::unordered_map<call_key, std::size_t, KeyHash, SameKey>
      row_at_;  ///< of the snapshot being made
  std::uint64_t rounds_ = 0;
  std::size_t last_rows_ = 0;          ///< of the read before
  std::uint64_t forgotten_calls_ = 0;  ///< of cgroups whose totals were dropped to stay bounded
};

}  // namespace ingero::collect
