// SPDX-License-Identifier: Apache-2.0
#include "export/debug_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <tuple>
#include <unordered_map>

#include "base/text.h"
#include "model/functions.h"

namespace ingero::exporting {
namespace {

using nlohmann::json;

/// Label of each cgroup, looked up once.
class Containers {
 public:
  explicit Containers(const WorkloadLookup& lookup) : lookup_(lookup) {}

  const std::string& label(model::CgroupId cgroup) {
    const auto [place, added] = labels_.try_emplace(cgroup);
    if (added && lookup_) place->second = escape_terminal(lookup_(cgroup).container);
    return place->second;
  }

 private:
  const WorkloadLookup& lookup_;
  std::unordered_map<model::CgroupId, std::string, model::IdentityHash> labels_;
};

std::string file_name(const model::FileKey& file) {
  return fmt::format("{}:{} {} {}", file.major(), file.minor(), file.inode, file.generation);
}

using Paths = std::unordered_map<model::FileKey, std::string, model::IdentityHash>;

Paths library_paths(const model::Snapshot& snapshot) {
  Paths paths;
  for (const auto& library : snapshot.libraries) {
    paths.emplace(library.file, escape_terminal(library.path));
  }
  return paths;
}

json processes_of(const model::Snapshot& snapshot, Containers& containers) {
  const Paths paths = library_paths(snapshot);
  json list = json::array();
  for (const model::Process& process : snapshot.processes) {
    json libraries = json::array();
    for (const model::FileKey& file : process.libraries) {
      const auto known = paths.find(file);
      libraries.push_back(known == paths.end() ? file_name(file) : known->second);
    }
    list.push_back({{"pid", process.key.tgid},
                    {"start_ns", process.key.start_ns},
                    {"comm", escape_terminal(process.comm)},
                    {"cgroup", model::to_number(process.cgroup)},
                    {"container", containers.label(process.cgroup)},
                    {"libraries", std::move(libraries)}});
  }
  return list;
}

json describe(const model::Library& library) {
  json probes = json::array();
  for (const auto& probe : library.probes) {
    probes.push_back({{"symbol", escape_terminal(probe.symbol)},
                      {"offset", fmt::format("{:#x}", probe.offset)},
                      {"moved", probe.moved}});
  }
  json refused = json::array();
  for (const auto& [symbol, reason] : library.refused) {
    refused.push_back({{"symbol", escape_terminal(symbol)}, {"reason", escape_terminal(reason)}});
  }
  return {{"device", fmt::format("{}:{}", library.file.major(), library.file.minor())},
          {"inode", library.file.inode},
          {"generation", library.file.generation},
          {"path", escape_terminal(library.path)},
          {"kind", model::to_string(library.kind)},
          {"version", escape_terminal(library.version)},
          {"method", model::to_string(library.method)},
          {"attach_ns", library.attach_ns},
          {"probes", std::move(probes)},
          {"refused_symbols", std::move(refused)},
          {"not_attached", escape_terminal(library.reason)}};
}

json files_of(const model::Snapshot& snapshot) {
  json list = json::array();
  for (const model::Library& library : snapshot.libraries) list.push_back(describe(library));
  return list;
}

std::string symbol_of(std::uint16_t function) {
  if (function == 0) return "";
  const model::ApiFunction* const row = model::find_api_function(function);
  return row ? std::string(row->symbol) : fmt::to_string(function);
}

json communicators_of(const model::Snapshot& snapshot, Containers& containers) {
  json list = json::array();
  for (const model::Communicator& comm : snapshot.communicators) {
    list.push_back({{"handle", fmt::format("{:#x}", comm.handle)},
                    {"comm_id_hash", fmt::format("{:016x}", comm.id_hash)},
                    {"rank", comm.rank},
                    {"nranks", comm.nranks},
                    {"name", escape_terminal(comm.name)},
                    {"pid", comm.process.tgid},
                    {"container", containers.label(comm.cgroup)},
                    {"collectives", comm.collectives},
                    {"created_by", symbol_of(comm.function)},
                    {"created_unix_ns", comm.created_unix_ns},
                    {"last_enqueue_unix_ns", comm.last_enqueue_unix_ns},
                    {"parent", fmt::format("{:#x}", comm.parent)},
                    {"libnccl_version", escape_terminal(comm.library_version)}});
  }
  return list;
}

struct CallSums {
  std::uint64_t calls = 0;
  std::uint64_t errors = 0;
  std::uint64_t bytes = 0;
  std::uint64_t duration_ns = 0;
  std::uint64_t unfinished = 0;
  std::uint64_t barriers = 0;
};

json calls_of(const model::Snapshot& snapshot, Containers& containers) {
  std::map<std::pair<std::string, std::uint16_t>, CallSums> sums;
  for (const model::CallSeries& call : snapshot.calls) {
    CallSums& sum = sums[{containers.label(call.cgroup), call.function}];
    sum.calls += call.totals.calls;
    sum.errors += call.totals.errors;
    sum.bytes += call.totals.bytes;
    sum.duration_ns += call.totals.duration_ns;
    sum.unfinished += call.totals.unfinished;
    sum.barriers += call.totals.barriers;
  }
  json list = json::array();
  for (const auto& [key, sum] : sums) {
    list.push_back({{"container", key.first},
                    {"function", symbol_of(key.second)},
                    {"calls", sum.calls},
                    {"errors", sum.errors},
                    {"bytes", sum.bytes},
                    {"duration_ns", sum.duration_ns},
                    {"unfinished", sum.unfinished},
                    {"barriers", sum.barriers}});
  }
  return list;
}

json refusals_of(const model::Snapshot& snapshot) {
  json list = json::array();
  for (const model::Refusal& refusal : snapshot.refusals) {
    list.push_back({{"reason", escape_terminal(refusal.reason)},
                    {"message", escape_terminal(refusal.message)},
                    {"pid", refusal.pid},
                    {"count", refusal.count}});
  }
  return list;
}

json counts_of(const std::map<std::string, std::uint64_t>& counts) {
  json object = json::object();
  for (const auto& [reason, count] : counts) object[escape_terminal(reason)] = count;
  return object;
}

}  // namespace

std::vector<std::string> waiting_for(const model::Snapshot& snapshot, bool called) {
  if (snapshot.libraries.empty()) return {"no process maps libnccl, libcudart or libcuda yet"};
  const bool attached = std::any_of(snapshot.libraries.begin(), snapshot.libraries.end(),
                                    [](const auto& library) { return !library.probes.empty(); });
  if (!attached) return {"no library has a probe: the reasons stand in files"};
  if (!called) return {"no traced function was called yet"};
  return {};
}

json debug_state(const model::Snapshot& snapshot, const WorkloadLookup& lookup, const json& extra) {
  Containers containers(lookup);
  json state = extra.is_object() ? extra : json::object();
  state["unix_ns"] = snapshot.unix_ns;
  state["method"] = model::to_string(snapshot.method);
  state["waiting_for"] = waiting_for(snapshot, !snapshot.calls.empty());
  state["processes_seen"] = snapshot.processes_seen;
  state["full_scans"] = snapshot.full_scans;
  state["processes"] = processes_of(snapshot, containers);
  state["files"] = files_of(snapshot);
  state["communicators"] = communicators_of(snapshot, containers);
  state["calls"] = calls_of(snapshot, containers);
  state["refusals"] = refusals_of(snapshot);
  state["events_lost"] = counts_of(snapshot.events_lost);
  state["unattributed_calls"] = counts_of(snapshot.unattributed_calls);
  state["attach_failures"] = counts_of(snapshot.attach_failures);
  return state;
}

Result<std::string> debug_state_text(const model::Snapshot& snapshot, const WorkloadLookup& lookup,
                                     const json& extra) {
  try {
    // Escaped strings are valid UTF-8; `extra` is the caller's and may hold anything.
    return debug_state(snapshot, lookup, extra)
               .dump(2, ' ', false, json::error_handler_t::replace) +
           "\n";
  } catch (const std::exception& problem) {
    return fail(Error{"write debug state", "", problem.what(), "", 0});
  }
}

}  // namespace ingero::exporting
