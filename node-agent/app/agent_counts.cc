// SPDX-License-Identifier: Apache-2.0
// What the agent tells of what was counted, and what it looks at and forgets in time for that.
#include <algorithm>
#include <utility>

#include "app/agent.h"
#include "app/process_status.h"

namespace ingero::app {
namespace {

constexpr std::uint64_t kRoundsPerLook = 3;     // for containers that have ended
constexpr std::uint64_t kRoundsPerGlance = 10;  // at what may be gone before a scrape
constexpr std::uint64_t kRoundsPerFree = 5;     // of the counters of processes that have ended
constexpr std::uint64_t kRoundsPerRetain = 60;  // of the cgroups that are known

}  // namespace

// ---- housekeeping ----------------------------------------------------------------------------------

void Agent::housekeeping() {
  ++rounds_;
  clock_.resample();  // microseconds; a step of the wall clock puts a second of recorded calls off
  if (rounds_ % kRoundsPerGlance == 0) glance();
  if (rounds_ % kRoundsPerRetain == 0) forget_gone();
  if (rounds_ % kRoundsPerLook == 0) find_gone();
  refresh_workloads();
  if (finder_->take_due()) {
    host_scanner_->look_at_all();  // it is not known who maps what is to be tried again
    scan_host();
  }
  layouts_->look_again();
  const std::lock_guard lock(collector_mutex_);
  if (collector_->ended_waiting() != 0 && rounds_ % kRoundsPerFree == 0) free_ended();
}

/// What cannot wait until somebody scrapes, because it is asked of what may be gone then: ranks of communicators,
/// names of cgroups, network namespaces. Counters are not read for it, of which quiet processes have many.
void Agent::glance() {
  model::Snapshot seen;
  collect::CallCollector::Cgroups calling;
  {
    const std::lock_guard lock(collector_mutex_);
    collector_->look(seen);
    calling = collector_->living_cgroups();
  }
  registry_->fill(seen);
  credit_retransmits(seen, calling);
  resolve({calling.begin(), calling.end()});
}

/// Cgroups that are gone and under which nothing is counted any more. They are gone before anybody looks who
/// counts: a process that is in its first call at that moment, and ends, would lose its name otherwise.
void Agent::forget_gone() {
  const auto gone = resolver_.gone({});
  if (gone.empty()) return;
  auto used = registry_->cgroups();
  model::Snapshot counts;
  {
    const std::lock_guard lock(collector_mutex_);
    collector_->processes();  // who is in a call for the first time has counted nothing yet
    used.merge(collector_->living_cgroups());
    collector_->read(counts);
  }
  for (const model::CallSeries& series : counts.calls) used.insert(series.cgroup);
  resolver_.forget(gone, std::vector<model::CgroupId>(used.begin(), used.end()));
}

/// Containers that have ended: their cgroups are gone.
void Agent::find_gone() {
  auto living = registry_->cgroups();
  {
    const std::lock_guard lock(collector_mutex_);
    living.merge(collector_->living_cgroups());
  }
  const std::vector<model::CgroupId> list(living.begin(), living.end());
  workloads_->set_gone(resolver_.gone(list), system_clock_source().monotonic_ns());
}

/// Moves what ended processes have counted out of the maps. The collector's mutex is held.
void Agent::free_ended() {
  model::Snapshot unused;
  collector_->read(unused);
}

/// Exits whose event found the ring full, or whose process was not in the map. The scan has seen who is there;
/// only the others are asked for, each once.
void Agent::find_missed_exits(const HostScan& scan) {
  std::vector<model::ProcessKey> counted;
  {
    const std::lock_guard lock(collector_mutex_);
    counted = collector_->processes();
  }
  std::erase_if(counted, [&](const model::ProcessKey& process) {
    return scan.running.contains(process) || process.start_ns >= scan.listed_boot_ns ||
           is_alive(process);
  });
  const std::lock_guard lock(collector_mutex_);
  for (const model::ProcessKey& process : counted) collector_->process_ended(process);
}

// ---- attribute -------------------------------------------------------------------------------------

std::shared_ptr<const model::Snapshot> Agent::snapshot(collect::CallRows rows) {
  auto snapshot = std::make_shared<model::Snapshot>();
  {
    const std::lock_guard lock(collector_mutex_);
    collector_->read(*snapshot, rows);
  }
  registry_->fill(*snapshot);
  snapshot->unix_ns =
      static_cast<std::int64_t>(clock_.unix_from_monotonic(system_clock_source().monotonic_ns()));
  attribute(*snapshot);
  return snapshot;
}

bool Agent::has_counted() {
  const std::lock_guard lock(collector_mutex_);
  return collector_->has_counted();
}

std::shared_ptr<const model::Snapshot> Agent::overview() {
  auto snapshot = std::make_shared<model::Snapshot>();
  {
    const std::lock_guard lock(collector_mutex_);
    collector_->read_losses(*snapshot);
  }
  registry_->fill(*snapshot);
  workloads_->filter(*snapshot, system_clock_source().monotonic_ns());
  return snapshot;
}

void Agent::credit_retransmits(model::Snapshot& snapshot,
                               const collect::CallCollector::Cgroups& calling) {
  const auto strangers = sockets_->attribute(snapshot, calling);
  if (strangers.empty()) return;
  const std::lock_guard lock(collector_mutex_);
  collector_->drop_retransmits(strangers);
}

/// Looks for those whose path nobody knows.
void Agent::resolve(std::vector<model::CgroupId> cgroups) {
  const auto table = resolver_.snapshot();
  std::erase_if(cgroups, [&](model::CgroupId id) { return table->find(id) != nullptr; });
  if (cgroups.empty()) return;
  resolver_.resolve_missing(cgroups);
  refresh_workloads();
}

void Agent::attribute(model::Snapshot& snapshot) {
  collect::CallCollector::Cgroups counted;
  for (const model::CallSeries& series : snapshot.calls) counted.insert(series.cgroup);
  credit_retransmits(snapshot, {});
  resolve({counted.begin(), counted.end()});
  workloads_->filter(snapshot, system_clock_source().monotonic_ns());
  if (options_.only_cgroup.empty()) return;
  std::erase_if(snapshot.calls, [&](const auto& row) { return !is_selected(row.cgroup); });
  std::erase_if(snapshot.errors, [&](const auto& row) { return !is_selected(row.cgroup); });
  std::erase_if(snapshot.communicators, [&](const auto& row) { return !is_selected(row.cgroup); });
  std::erase_if(snapshot.ended_collectives,
                [&](const auto& row) { return !is_selected(row.cgroup); });
  std::erase_if(snapshot.processes, [&](const auto& row) { return !is_selected(row.cgroup); });
  std::erase_if(snapshot.retransmits, [&](const auto& row) { return !is_selected(row.cgroup); });
  std::erase_if(snapshot.waits, [&](const auto& row) { return !is_selected(row.cgroup); });
}

}  // namespace ingero::app
