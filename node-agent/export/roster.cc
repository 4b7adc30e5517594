// SPDX-License-Identifier: Apache-2.0
#include "export/roster.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "base/text.h"
#include "export/series_budget.h"

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
  std::vector<CommunicatorRow> rows;
  rows.reserve(merged.size());
  for (auto& [key, row] : merged) rows.push_back(std::move(row));
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
    return a.created_unix_ns < b.created_unix_ns;
  });
  return rows;
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

std::size_t add_roster(const Roster& roster, const WorkloadTable& table,
                       const std::vector<bool>& folded, std::size_t room, FamilySet& families) {
  std::size_t dropped = 0;
  const auto take = [&](std::size_t workload, std::size_t series) {
    if (folded[workload] || series > room) {
      dropped += series;
      return false;
    }
    room -= series;
    return true;
  };
  for (const LoadedLibrary& row : roster.libraries) {
    if (!take(row.workload, 1)) continue;
    families.add(MetricId::kNcclProcessLoaded, table.workloads()[row.workload],
                 {row.pid, row.comm, row.path, row.version}, 1);
  }
  CommunicatorRow rest;
  rest.comm_id = kOther;
  bool any_rest = false;
  for (const CommunicatorRow& row : roster.communicators) {
    if (take(row.workload, row.series())) {
      add_communicator(row, table.workloads()[row.workload], families);
    } else {
      merge(rest, row);
      any_rest = true;
    }
  }
  rest.infos.clear();
  if (any_rest) add_communicator(rest, Workload{"", "", kOther}, families);
  return dropped;
}

}  // namespace ingero::exporting
