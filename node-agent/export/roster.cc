// SPDX-License-Identifier: Apache-2.0
#include "export/roster.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
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

using Rows = std::unordered_map<CommunicatorLabels, CommunicatorRow, CommunicatorLabelsHash>;
using Info = std::array<std::string, 3>;  // comm_name, nranks, libnccl_version

Info info_of(const model::Communicator& communicator) {
  return {short_text(communicator.name),
          communicator.nranks ? fmt::to_string(communicator.nranks) : "",
          short_text(communicator.library_version)};
}

/// More than one if communicators share id and rank.
std::vector<Info> infos_of(const CommunicatorRow& row) {
  std::vector<Info> infos;
  infos.reserve(row.members.size());
  for (const model::Communicator* communicator : row.members)
    infos.push_back(info_of(*communicator));
  std::sort(infos.begin(), infos.end());
  infos.erase(std::unique(infos.begin(), infos.end()), infos.end());
  return infos;
}

void add_member(CommunicatorRow& row, const model::Communicator& communicator) {
  const std::int64_t created = communicator.created_unix_ns;
  row.created_unix_ns = row.members.empty() ? created : std::min(row.created_unix_ns, created);
  row.collectives += communicator.collectives;
  row.last_enqueue_unix_ns = std::max(row.last_enqueue_unix_ns, communicator.last_enqueue_unix_ns);
  row.members.push_back(&communicator);
}

Rows find_live(const model::Snapshot& snapshot, const WorkloadTable& table) {
  Rows rows;
  rows.reserve(snapshot.communicators.size());
  for (const model::Communicator& communicator : snapshot.communicators) {
    const CommunicatorLabels labels{table.index_of(communicator.cgroup), communicator.id_hash,
                                    std::max(communicator.rank, -1)};
    CommunicatorRow& row = rows[labels];
    row.workload = labels.workload;
    row.id_hash = labels.id_hash;
    row.rank = labels.rank;
    add_member(row, communicator);
  }
  for (auto& [labels, row] : rows)
    if (row.members.size() > 1) row.infos = infos_of(row).size();
  return rows;
}

/// What is left of communicators that are gone belongs to the live ones that have their labels.
void add_gone(const model::Snapshot& snapshot, const WorkloadTable& table, Rows& rows,
              Roster& roster) {
  std::optional<model::CgroupId> cgroup;  // its rows come one after the other
  std::size_t workload = 0;
  for (const model::EndedCollectives& ended : snapshot.ended_collectives) {
    if (ended.cgroup != cgroup) workload = table.index_of(ended.cgroup);
    cgroup = ended.cgroup;
    const CommunicatorLabels labels{workload, ended.id_hash, std::max(ended.rank, -1)};
    const auto row = rows.find(labels);
    if (row != rows.end()) row->second.collectives += ended.collectives;
    else roster.gone.emplace_back(labels, ended.collectives);
  }
}

void find_communicators(const model::Snapshot& snapshot, const WorkloadTable& table,
                        Roster& roster) {
  Rows rows = find_live(snapshot, table);
  add_gone(snapshot, table, rows, roster);
  roster.communicators.reserve(rows.size());
  for (auto& [labels, row] : rows) roster.communicators.push_back(std::move(row));
  std::sort(roster.communicators.begin(), roster.communicators.end(),
            [](const auto& a, const auto& b) {
              return std::tie(a.created_unix_ns, a.workload, a.id_hash, a.rank) <
                     std::tie(b.created_unix_ns, b.workload, b.id_hash, b.rank);
            });
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

std::string id_text(std::uint64_t id_hash) {
  return id_hash == 0 ? "" : fmt::format("{:016x}", id_hash);
}

std::string rank_text(std::int32_t rank) { return rank < 0 ? "" : fmt::to_string(rank); }

void add_counts(const CommunicatorRow& row, const std::string& comm_id, const Workload& workload,
                std::uint64_t collectives, FamilySet& families) {
  const std::string rank = rank_text(row.rank);
  families.add(MetricId::kCommunicatorCollectives, workload, {comm_id, rank},
               static_cast<double>(collectives));
  if (row.last_enqueue_unix_ns == 0) return;
  families.add(MetricId::kCommunicatorLastEnqueue, workload, {comm_id, rank},
               static_cast<double>(row.last_enqueue_unix_ns) / kNsPerSecond);
}

void add_communicator(const CommunicatorRow& row, const Workload& workload,
                      std::uint64_t collectives, FamilySet& families) {
  const std::string comm_id = id_text(row.id_hash), rank = rank_text(row.rank);
  for (const auto& [name, nranks, version] : infos_of(row))
    families.add(MetricId::kCommunicatorInfo, workload, {comm_id, name, rank, nranks, version}, 1);
  add_counts(row, comm_id, workload, collectives, families);
}

}  // namespace

Roster make_roster(const model::Snapshot& snapshot, const WorkloadTable& table,
                   std::vector<WorkloadSums>& sums) {
  Roster roster;
  roster.libraries = find_loaded(snapshot, table, sums);
  find_communicators(snapshot, table, roster);
  return roster;
}

/// Accounts outlive cgroups: who comes under the same name goes on where the other one was.
void RosterSeries::name_workloads(const WorkloadTable& table) {
  std::map<Name, std::size_t> names;
  name_of_.clear();
  for (const Workload& workload : table.workloads()) {
    const Name name{workload.k8s_namespace, workload.pod, workload.container};
    const auto known = names_.find(name);
    const std::size_t number = known != names_.end() ? known->second : ++last_name_;
    // Two workloads of one name: the one that is exported, and one that is not any more.
    name_of_.push_back(names.try_emplace(name, number).first->second);
  }
  names_ = std::move(names);
}

RosterSeries::Account* RosterSeries::find_account(CommunicatorLabels labels) {
  labels.workload = name_of_[labels.workload];
  const auto found = accounts_.find(labels);
  return found == accounts_.end() ? nullptr : &found->second;
}

RosterSeries::Account& RosterSeries::account_of(const CommunicatorRow& row) {
  Account& account = accounts_[{name_of_[row.workload], row.id_hash, row.rank}];
  account.round = round_;
  return account;
}

/// What those that are gone counted since the last look, where it was told. Of those that nobody has ever
/// shown, nothing is.
void RosterSeries::fold_gone(const Roster& roster, const WorkloadTable& table) {
  std::unordered_map<Account*, std::uint64_t> sums;
  for (const auto& [labels, collectives] : roster.gone) {
    if (accounts_.empty()) return;
    Account* const account = find_account(labels);
    if (account == nullptr) continue;
    account->round = round_;
    if (table.workloads()[labels.workload].exported && account->split.is_folded())
      sums[account] += collectives;
  }
  for (const auto& [account, collectives] : sums) other_.add(account->split.fold({collectives}));
}

std::size_t RosterSeries::add(const Roster& roster, const WorkloadTable& table,
                              const std::vector<bool>& folded, SeriesRoom& room,
                              FamilySet& families) {
  ++round_;
  name_workloads(table);
  std::size_t dropped = 0;
  CommunicatorRow rest;
  for (const Item& item : by_turns(roster)) {
    const Workload& workload = table.workloads()[item.workload];
    const bool out = folded[item.workload] || !room.take(workload, item.series());
    if (out && workload.exported) dropped += item.series();
    if (item.communicator == nullptr) {
      if (!out) add_library(*item.library, workload, families);
      continue;
    }
    const CommunicatorRow& row = *item.communicator;
    if (!out) {
      add_communicator(row, workload, account_of(row).split.keep({row.collectives}).count,
                       families);
    } else if (workload.exported) {
      other_.add(account_of(row).split.fold({row.collectives}));
      rest.last_enqueue_unix_ns = std::max(rest.last_enqueue_unix_ns, row.last_enqueue_unix_ns);
    }
  }
  fold_gone(roster, table);
  if (other_.count != 0)
    add_counts(rest, kOther, Workload{"", "", kOther, {}}, other_.count, families);
  std::erase_if(accounts_, [&](const auto& entry) { return entry.second.round != round_; });
  return dropped;
}

}  // namespace ingero::exporting
