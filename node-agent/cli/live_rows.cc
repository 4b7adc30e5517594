// SPDX-License-Identifier: Apache-2.0
#include "cli/live_rows.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <unordered_map>

#include "cli/call_name.h"
#include "model/functions.h"
#include "model/histogram.h"

namespace ingero::cli {
namespace {

using model::CallTotals;
using model::CgroupId;
using model::LibraryKind;
using model::ProcessKey;
using model::Snapshot;

/// What one row counts. Variants of an API (cudaMemcpy, cudaMemcpy_ptds) share its operation.
struct RowKey {
  CgroupId cgroup;
  ProcessKey process;
  api_source source;
  std::string_view operation;
  std::string_view direction;
  auto operator<=>(const RowKey&) const = default;
};

using TotalsByRow = std::map<RowKey, CallTotals>;

RowKey key_of(const model::CallSeries& series) {
  const CallName name = call_name(series);
  return RowKey{series.cgroup, series.process, name.source, name.operation, name.direction};
}

TotalsByRow totals_by_row(const Snapshot& snapshot) {
  TotalsByRow totals;
  for (const model::CallSeries& series : snapshot.calls) totals[key_of(series)].add(series.totals);
  return totals;
}

/// The earlier totals under the keys of now: those of a process that has no series any more are now
/// part of its container's ended processes.
TotalsByRow earlier_totals(const Snapshot& previous, const Snapshot& current) {
  std::set<ProcessKey> alive;
  for (const model::CallSeries& series : current.calls) alive.insert(series.process);
  TotalsByRow totals;
  for (const model::CallSeries& series : previous.calls) {
    RowKey key = key_of(series);
    if (!alive.contains(series.process)) key.process = ProcessKey{};
    totals[key].add(series.totals);
  }
  return totals;
}

/// Zero where a total went back, as after a loss of the kernel's maps: nothing false is shown.
std::uint64_t increase(std::uint64_t now, std::uint64_t before) {
  return now > before ? now - before : 0;
}

void set_rates(LiveRow& row, const CallTotals& now, const CallTotals& before, double seconds) {
  row.interval_calls = increase(now.calls, before.calls);
  row.calls_per_s = static_cast<double>(row.interval_calls) / seconds;
  row.bytes_per_s = static_cast<double>(increase(now.bytes, before.bytes)) / seconds;
  model::DurationCounts durations{};
  for (std::size_t i = 0; i < durations.size(); ++i) {
    durations[i] = increase(now.durations[i], before.durations[i]);
  }
  const double p50 = model::duration_quantile_ns(durations, 0.5);
  if (std::isnan(p50)) return;
  row.p50_ns = p50;
  row.p99_ns = model::duration_quantile_ns(durations, 0.99);
}

bool kind_serves(LibraryKind kind, api_source source) {
  switch (source) {
    case API_SOURCE_NCCL: return kind == LibraryKind::kNccl || kind == LibraryKind::kRccl;
    case API_SOURCE_CUDA: return kind == LibraryKind::kCudart;
    case API_SOURCE_DRIVER: return kind == LibraryKind::kCuda;
    case API_SOURCE_NONE: return false;
  }
  return false;
}

/// Names of the libraries and processes of one snapshot.
class Names {
 public:
  Names(const Snapshot& snapshot, const ContainerLabel& container_of)
      : container_of_(container_of) {
    for (const auto& library : snapshot.libraries) libraries_.emplace(library.file, &library);
    for (const auto& process : snapshot.processes) processes_.emplace(process.key, &process);
  }

  const std::string& container(CgroupId cgroup) {
    const auto [entry, is_new] = containers_.try_emplace(cgroup);
    if (is_new && container_of_) entry->second = container_of_(cgroup);
    return entry->second;
  }

  std::string comm(const ProcessKey& key) const {
    const auto found = processes_.find(key);
    return found == processes_.end() ? std::string() : found->second->comm;
  }

  /// "nccl 2.28.9"; both versions when a process maps two; the bare name when none is known.
  std::string library(const ProcessKey& key, api_source source) const {
    std::string name(source_library(source));
    std::set<std::string_view> versions;
    const auto found = processes_.find(key);
    if (found == processes_.end()) return name;
    for (const model::FileKey& file : found->second->libraries) {
      const auto library = libraries_.find(file);
      if (library == libraries_.end() || !kind_serves(library->second->kind, source)) continue;
      name = model::to_string(library->second->kind);
      if (!library->second->version.empty()) versions.insert(library->second->version);
    }
    for (const std::string_view version : versions) {
      name.append(version == *versions.begin() ? " " : ",").append(version);
    }
    return name;
  }

 private:
  const ContainerLabel& container_of_;
  std::unordered_map<model::FileKey, const model::Library*, model::IdentityHash> libraries_;
  std::unordered_map<ProcessKey, const model::Process*, model::IdentityHash> processes_;
  std::map<CgroupId, std::string> containers_;
};

/// Rates in steps of a factor of four; idle is below all.
int rate_step(double calls_per_s) {
  if (!(calls_per_s > 0)) return -1000;
  return static_cast<int>(std::floor(std::log2(calls_per_s) / 2));
}

/// Sums of the rows' rates.
struct Rates {
  std::map<CgroupId, double> container;
  std::map<std::pair<CgroupId, ProcessKey>, double> process;
};

void sort_rows(std::vector<LiveRow>& rows) {
  Rates rates;
  for (const LiveRow& row : rows) {
    rates.container[row.cgroup] += row.calls_per_s.value_or(0);
    rates.process[{row.cgroup, row.process}] += row.calls_per_s.value_or(0);
  }
  const auto order = [&](const LiveRow& row) {
    // Ended processes stand behind the living ones of their container.
    return std::tuple(-rate_step(rates.container[row.cgroup]), std::string_view(row.container),
                      row.cgroup, row.process.tgid == 0,
                      -rate_step(rates.process[{row.cgroup, row.process}]), row.process,
                      -rate_step(row.calls_per_s.value_or(0)), std::string_view(row.operation));
  };
  std::sort(rows.begin(), rows.end(),
            [&](const LiveRow& a, const LiveRow& b) { return order(a) < order(b); });
}

}  // namespace

std::vector<LiveRow> live_rows(const TimedSnapshot& previous, const TimedSnapshot& current,
                               const ContainerLabel& container_of) {
  std::vector<LiveRow> rows;
  if (current.snapshot == nullptr) return rows;
  const bool has_interval =
      previous.snapshot != nullptr && current.monotonic_ns > previous.monotonic_ns;
  const double seconds = static_cast<double>(current.monotonic_ns - previous.monotonic_ns) / 1e9;
  TotalsByRow before;
  if (has_interval) before = earlier_totals(*previous.snapshot, *current.snapshot);

  Names names(*current.snapshot, container_of);
  for (const auto& [key, totals] : totals_by_row(*current.snapshot)) {
    LiveRow row;
    row.container = names.container(key.cgroup);
    row.cgroup = key.cgroup;
    row.process = key.process;
    row.comm = names.comm(key.process);
    row.library = names.library(key.process, key.source);
    row.operation = key.operation;
    if (!key.direction.empty()) row.operation.append(" ").append(key.direction);
    row.calls = totals.calls;
    row.errors = totals.errors;
    row.bytes = totals.bytes;
    if (has_interval) set_rates(row, totals, before[key], seconds);
    rows.push_back(std::move(row));
  }
  sort_rows(rows);
  return rows;
}

}  // namespace ingero::cli
