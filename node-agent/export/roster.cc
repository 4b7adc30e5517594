// SPDX-License-Identifier: Apache-2.0
#include "export/roster.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "base/text.h"

namespace ingero::exporting {
namespace {

constexpr double kNsPerSecond = 1e9;
constexpr std::size_t kMaxPath = 512;  // characters; the end tells libraries apart
constexpr std::size_t kMaxText = 64;

std::string short_text(std::string_view text) { return truncate(escape_terminal(text), kMaxText); }

/// The end of a long path, behind an ellipsis.
std::string path_text(std::string_view path) {
  if (path.size() <= kMaxPath) return escape_terminal(path);
  return "..." + escape_terminal(path.substr(path.size() - kMaxPath));
}

bool holds_nccl(const model::Library& library) {
  switch (library.kind) {
    case model::LibraryKind::kNccl:
    case model::LibraryKind::kRccl: return true;
    case model::LibraryKind::kCudart:
    case model::LibraryKind::kCuda: return false;
    case model::LibraryKind::kOther: break;
  }
  const auto in_probe = [](const auto& probe) { return is_nccl_symbol(probe.symbol); };
  const auto in_refusal = [](const auto& refusal) { return is_nccl_symbol(refusal.first); };
  return std::any_of(library.probes.begin(), library.probes.end(), in_probe) ||
         std::any_of(library.refused.begin(), library.refused.end(), in_refusal);
}

using Libraries = std::unordered_map<model::FileKey, const model::Library*, model::IdentityHash>;

Libraries nccl_libraries(const model::Snapshot& snapshot) {
  Libraries libraries;
  for (const model::Library& library : snapshot.libraries) {
    if (holds_nccl(library)) libraries.emplace(library.file, &library);
  }
  return libraries;
}

std::vector<LoadedLibrary> find_loaded(const model::Snapshot& snapshot, const WorkloadTable& table,
                                       std::vector<WorkloadSums>& sums) {
  const Libraries libraries = nccl_libraries(snapshot);
  std::map<std::tuple<std::size_t, std::uint32_t, std::string, std::string>, LoadedLibrary> loaded;
  for (const model::Process& process : snapshot.processes) {
    if (!process.counted) continue;
    const std::size_t workload = table.index_of(process.cgroup);
    bool any = false;
    for (const model::FileKey& file : process.libraries) {
      const auto found = libraries.find(file);
      if (found == libraries.end()) continue;
      any = true;
      LoadedLibrary row{workload, fmt::to_string(process.key.tgid), short_text(process.comm),
                        path_text(found->second->path), short_text(found->second->version)};
      // Not keyed by the start time: a process and its successor under one pid would be equal
      // series.
      loaded.try_emplace({workload, process.key.tgid, row.path, row.version}, row);
    }
    if (any) ++sums[workload].nccl_processes;
  }
  std::vector<LoadedLibrary> rows;
  rows.reserve(loaded.size());
  for (auto& [key, row] : loaded) rows.push_back(std::move(row));
  return rows;
}

CommunicatorRow describe(const model::Communicator& communicator, std::size_t workload) {
  CommunicatorRow row;
  row.workload = workload;
  if (communicator.id_hash != 0) row.comm_id = fmt::format("{:016x}", communicator.id_hash);
  if (communicator.rank >= 0) row.rank = fmt::to_string(communicator.rank);
  row.collectives = communicator.collectives;
  row.last_enqueue_unix_ns = communicator.last_enqueue_unix_ns;
  row.created_unix_ns = communicator.created_unix_ns;
  row.infos.push_back({short_text(communicator.name),
                       communicator.nranks ? fmt::to_string(communicator.nranks) : "",
                       short_text(communicator.library_version)});
  return row;
}

/// What is left of communicators that are gone.
CommunicatorRow describe(const model::EndedCollectives& ended, std::size_t workload) {
  CommunicatorRow row;
  row.workload = workload;
  if (ended.id_hash != 0) row.comm_id = fmt::format("{:016x}", ended.id_hash);
  if (ended.rank >= 0) row.rank = fmt::to_string(ended.rank);
  row.collectives = ended.collectives;
  row.live = false;
  return row;
}

void merge(CommunicatorRow& row, const CommunicatorRow& other) {
  row.collectives += other.collectives;
  row.last_enqueue_unix_ns = std::max(row.last_enqueue_unix_ns, other.last_enqueue_unix_ns);
  row.created_unix_ns = std::min(row.created_unix_ns, other.created_unix_ns);
  for (const auto& info : other.infos) {
    if (std::find(row.infos.begin(), row.infos.end(), info) == row.infos.end()) {
      row.infos.push_back(info);
    }
  }
}

std::vector<CommunicatorRow> find_communicators(const model::Snapshot& snapshot,
                                                const WorkloadTable& table) {
  std::map<std::tuple<std::size_t, std::string, std::string>, CommunicatorRow> merged;
  for (const model::Communicator& communicator : snapshot.communicators) {
    CommunicatorRow row = describe(communicator, table.index_of(communicator.cgroup));
    const auto [place, added] = merged.try_emplace({row.workload, row.comm_id, row.rank}, row);
    if (!added) merge(place->second, row);
  }
  for (const model::EndedCollectives& ended : snapshot.ended_collectives) {
    CommunicatorRow row = describe(ended, table.index_of(ended.cgroup));
    const auto [place, added] = merged.try_emplace({row.workload, row.comm_id, row.rank}, row);
    if (!added) place->second.collectives += row.collectives;
  }
  std::vector<CommunicatorRow> rows;
  rows.reserve(merged.size());
  for (auto& [key, row] : merged) rows.push_back(std::move(row));
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
    return a.created_unix_ns < b.created_unix_ns;
  });
  return rows;
}

/// One entry of a roster.
struct Item {
  std::size_t workload;
  const CommunicatorRow* communicator;  ///< or else a library
  const LoadedLibrary* library;

  std::size_t series() const { return communicator != nullptr ? communicator->series() : 1; }
};

/// The first of each container, then the second of each; communicators and libraries in turn.
std::vector<Item> by_turns(const Roster& roster) {
  std::map<std::size_t, std::size_t> communicators, libraries;  // by workload: how many so far
  std::vector<std::tuple<std::size_t, std::size_t, Item>> turns;
  for (const CommunicatorRow& row : roster.communicators) {
    if (row.live)
      turns.emplace_back(2 * communicators[row.workload]++, row.workload,
                         Item{row.workload, &row, nullptr});
  }
  for (const LoadedLibrary& row : roster.libraries)
    turns.emplace_back(2 * libraries[row.workload]++ + 1, row.workload,
                       Item{row.workload, nullptr, &row});
  std::stable_sort(turns.begin(), turns.end(), [](const auto& a, const auto& b) {
    return std::tie(std::get<0>(a), std::get<1>(a)) < std::tie(std::get<0>(b), std::get<1>(b));
  });
  std::vector<Item> items;
  items.reserve(turns.size());
  for (const auto& turn : turns) items.push_back(std::get<2>(turn));
  return items;
}

void add_library(const LoadedLibrary& row, const Workload& workload, FamilySet& families) {
  families.add(MetricId::kNcclProcessLoaded, workload, {row.pid, row.comm, row.path, row.version},
               1);
}

void add_communicator(const CommunicatorRow& row, const Workload& workload, FamilySet& families) {
  for (const auto& [name, nranks, version] : row.infos) {
    families.add(MetricId::kCommunicatorInfo, workload,
                 {row.comm_id, name, row.rank, nranks, version}, 1);
  }
  families.add(MetricId::kCommunicatorCollectives, workload, {row.comm_id, row.rank},
               static_cast<double>(row.collectives));
  if (row.last_enqueue_unix_ns == 0) return;
  families.add(MetricId::kCommunicatorLastEnqueue, workload, {row.comm_id, row.rank},
               static_cast<double>(row.last_enqueue_unix_ns) / kNsPerSecond);
}

}  // namespace

Roster make_roster(const model::Snapshot& snapshot, const WorkloadTable& table,
                   std::vector<WorkloadSums>& sums) {
  return {find_loaded(snapshot, table, sums), find_communicators(snapshot, table)};
}

RosterSeries::Account& RosterSeries::account_of(const CommunicatorRow& row,
                                                const WorkloadTable& table) {
  const Workload& workload = table.workloads()[row.workload];
  Account& account =
      accounts_[{workload.k8s_namespace, workload.pod, workload.container, row.comm_id, row.rank}];
  account.round = round_;
  return account;
}

void RosterSeries::fold(const CommunicatorRow& row, const WorkloadTable& table,
                        CommunicatorRow& rest) {
  if (!table.workloads()[row.workload].exported) return;
  other_.add(account_of(row, table).split.fold({row.collectives}));
  rest.last_enqueue_unix_ns = std::max(rest.last_enqueue_unix_ns, row.last_enqueue_unix_ns);
}

std::size_t RosterSeries::add(const Roster& roster, const WorkloadTable& table,
                              const std::vector<bool>& folded, SeriesRoom& room,
                              FamilySet& families) {
  ++round_;
  std::size_t dropped = 0;
  CommunicatorRow rest;
  rest.comm_id = kOther;
  for (const Item& item : by_turns(roster)) {
    const bool out =
        folded[item.workload] || !room.take(table.workloads()[item.workload], item.series());
    if (out && table.workloads()[item.workload].exported) dropped += item.series();
    if (item.communicator == nullptr) {
      if (!out) add_library(*item.library, table.workloads()[item.workload], families);
    } else if (out) {
      fold(*item.communicator, table, rest);
    } else {
      CommunicatorRow row = *item.communicator;
      row.collectives = account_of(row, table).split.keep({row.collectives}).count;
      add_communicator(row, table.workloads()[row.workload], families);
    }
  }
  for (const CommunicatorRow& row : roster.communicators) {
    // Gone: what it counted since the last look, where that was told.
    if (!row.live && account_of(row, table).split.is_folded()) fold(row, table, rest);
  }
  rest.collectives = other_.count;
  if (other_.count != 0) add_communicator(rest, Workload{"", "", kOther}, families);
  std::erase_if(accounts_, [&](const auto& entry) { return entry.second.round != round_; });
  return dropped;
}

}  // namespace ingero::exporting
