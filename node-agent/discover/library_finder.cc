// SPDX-License-Identifier: Apache-2.0
#include "discover/library_finder.h"

#include <linux/magic.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "discover/elf_bytes.h"
#include "discover/safe_open.h"

namespace ingero::discover {
namespace {

using Clock = std::chrono::steady_clock;
using Outcome = Inspection::Outcome;

constexpr std::size_t kMaxSetAside = 60000;  // the BPF map behind it holds 65536
constexpr std::size_t kMaxWaiting = 16384;
constexpr std::size_t kMaxWaitingPerContainer = 4096;
constexpr std::size_t kMaxMappers = 64;  // the next scan shows the others
constexpr std::chrono::seconds kDeadline{5};

void add_library(model::Process& process, const FileMapping& mapping) {
  process.key = mapping.process;
  process.cgroup = mapping.cgroup;
  process.comm = mapping.comm;
  if (std::find(process.libraries.begin(), process.libraries.end(), mapping.file) ==
      process.libraries.end())
    process.libraries.push_back(mapping.file);
}

std::vector<model::Process> processes_of(const std::vector<FileMapping>& mappings) {
  std::vector<model::Process> processes;
  for (const FileMapping& mapping : mappings) add_library(processes.emplace_back(), mapping);
  return processes;
}

}  // namespace

bool is_candidate_name(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  for (const std::string_view part :
       {"libnccl", "librccl", "libcudart", "libcuda.so", "torch_cuda"}) {
    if (name.find(part) != std::string_view::npos) return true;
  }
  return false;
}

ScanResult LibraryFinder::sort_out(const std::vector<FileMapping>& mappings,
                                   std::uint64_t noticed_ns) {
  ScanResult result;
  std::map<model::ProcessKey, model::Process> processes;
  for (const FileMapping& mapping : mappings) {
    if (is_traced(mapping, result)) {
      add_library(processes[mapping.process], mapping);
      result.traced_paths.insert(mapping.path);
    } else if (!is_set_aside(mapping)) {
      result.unsettled.insert(mapping.process);
      if (is_due(mapping)) wait_for(mapping, noticed_ns, result);
    }
  }
  for (auto& [key, process] : processes) result.processes.push_back(std::move(process));
  std::vector<model::CgroupId> containers;  // a queue goes with its last file
  for (const auto& [container, queue] : queues_) containers.push_back(container);
  for (const model::CgroupId container : containers) inspect_next(container);
  return result;
}

bool LibraryFinder::is_traced(const FileMapping& mapping, ScanResult& result) {
  const auto it = traced_.find(mapping.file);
  if (it == traced_.end()) return false;
  // Renamed or unlinked, as an update of its package does, it has another ctime and the same content.
  if (it->second.size == mapping.version.size && it->second.mtime_ns == mapping.version.mtime_ns)
    return true;
  if (handlers_.is_leased(mapping.file)) {
    it->second = mapping.version;
    return true;
  }
  traced_.erase(it);
  result.changed.push_back(mapping.file);
  return false;
}

bool LibraryFinder::is_set_aside(const FileMapping& mapping) {
  const auto aside = set_aside_.find(mapping.file);
  if (aside != set_aside_.end() && aside->second == mapping.version) return true;
  if (mapping.file_system == FUSE_SUPER_MAGIC) {
    // Whoever serves it could stop the kernel in the middle of an attach, and with it every fork on the host.
    refuse(mapping, "file_system",
           "its file system is served by a process (FUSE), which could stop");
    set_aside(mapping);
    return true;
  }
  return false;
}

/// False: what failed with it is not to be tried again yet.
bool LibraryFinder::is_due(const FileMapping& mapping) const {
  const auto now = Clock::now();
  return failed_.is_due({mapping.process, mapping.file}, now) &&
         failed_.is_due({{}, mapping.file}, now);
}

void LibraryFinder::wait_for(const FileMapping& mapping, std::uint64_t noticed_ns,
                             ScanResult& result) {
  result.incomplete = true;
  const auto it = waiting_.find(mapping.file);
  if (it != waiting_.end()) {
    auto& ways = it->second.mappings;
    const bool known = std::any_of(ways.begin(), ways.end(), [&](const FileMapping& way) {
      return way.process == mapping.process;
    });
    if (!known && ways.size() < kMaxMappers) ways.push_back(mapping);
    return;
  }
  Queue& queue = queues_[mapping.cgroup];
  if (waiting_.size() >= kMaxWaiting || queue.files.size() >= kMaxWaitingPerContainer) {
    refuse(mapping, "budget", "too many files wait to be looked into");
    return;
  }
  waiting_.emplace(mapping.file, Waiting{{mapping}, noticed_ns, false});
  if (is_candidate_name(mapping.path)) {
    queue.files.push_front(mapping.file);
  } else {
    queue.files.push_back(mapping.file);
  }
}

void LibraryFinder::inspect_next(model::CgroupId container) {
  const auto it = queues_.find(container);
  if (it == queues_.end() || it->second.busy) return;
  Queue& queue = it->second;
  if (queue.files.empty()) {
    queues_.erase(it);
    return;
  }
  Waiting& next = waiting_.at(queue.files.front());
  const FileMapping mapping = next.mappings.front();
  if (!budget_.allows(container, Clock::now())) {
    if (!std::exchange(next.deferred, true))
      refuse(mapping, "budget", "its container's files cost too much to look into; later");
    return;  // the next scan tries again
  }
  queue.files.pop_front();
  queue.busy = true;
  inspect(mapping);
}

void LibraryFinder::inspect(const FileMapping& mapping) {
  DeadlineWorker::Job job{to_number(mapping.cgroup), "inspect library", escape_path(mapping.path),
                          kDeadline};
  const auto accepted = worker_.run<Inspection>(
      std::move(job),
      [scanner = scanner_, mapping, preference = preference_]() -> Result<Inspection> {
        return inspect_mapping(scanner, mapping, preference);
      },
      [this, mapping](Result<Inspection> result) {
        if (result) return inspected(mapping, std::move(*result));
        Inspection failed;
        failed.reason = "timeout";
        failed.error = result.error();
        failed.cost.cpu = kMaxCpu;  // it is not known what it took, or still takes
        inspected(mapping, std::move(failed));
      });
  if (accepted) return;
  // Not now: it keeps its place, and the next scan tries again.
  if (!std::exchange(waiting_.at(mapping.file).deferred, true))
    refuse(mapping, "timeout", accepted.error().message());
  Queue& queue = queues_[mapping.cgroup];
  queue.busy = false;
  queue.files.push_front(mapping.file);
}

void LibraryFinder::inspected(const FileMapping& mapping, Inspection inspection) {
  ++inspected_;
  budget_.charge(mapping.cgroup, inspection.cost, Clock::now());
  settle(mapping, std::move(inspection));
  queues_[mapping.cgroup].busy = false;
  inspect_next(mapping.cgroup);
}

void LibraryFinder::settle(const FileMapping& mapping, Inspection inspection) {
  if (!inspection.reason.empty()) refuse(mapping, inspection.reason, inspection.error.message());
  switch (inspection.outcome) {
    case Outcome::kTraced: discovered(mapping, std::move(inspection)); return;
    case Outcome::kOther:
    case Outcome::kRefused:
      set_aside(mapping);
      waiting_.erase(mapping.file);
      return;
    case Outcome::kUnreachable:
    case Outcome::kFailed:
      failed_.failed({mapping.process, mapping.file}, Clock::now());
      try_next_way(mapping);
      return;
    case Outcome::kGone: try_next_way(mapping); return;
  }
}

void LibraryFinder::discovered(const FileMapping& mapping, Inspection inspection) {
  failed_.succeeded({mapping.process, mapping.file});
  Discovery discovery;
  discovery.library = std::move(*inspection.library);
  const auto it = waiting_.find(mapping.file);
  if (it != waiting_.end()) {
    discovery.mappers = processes_of(it->second.mappings);
    discovery.noticed_ns = it->second.noticed_ns;
    waiting_.erase(it);
  }
  traced_.insert_or_assign(mapping.file, mapping.version);
  handlers_.found(std::move(discovery));
}

/// Another process that maps the file may show the way to it.
void LibraryFinder::try_next_way(const FileMapping& mapping) {
  const auto it = waiting_.find(mapping.file);
  if (it == waiting_.end()) return;
  auto& ways = it->second.mappings;
  std::erase_if(ways, [&](const FileMapping& way) { return way.process == mapping.process; });
  if (ways.empty()) {
    waiting_.erase(it);
    return;
  }
  const model::CgroupId container = ways.front().cgroup;
  queues_[container].files.push_back(mapping.file);
  if (container != mapping.cgroup) inspect_next(container);
}

void LibraryFinder::forget_for_now(const model::FileKey& file) {
  traced_.erase(file);
  failed_.failed({{}, file}, Clock::now());
}

void LibraryFinder::forget_for_now(const model::FileKey& file,
                                   const std::vector<model::Process>& mappers) {
  traced_.erase(file);
  for (const model::Process& mapper : mappers) failed_.failed({mapper.key, file}, Clock::now());
}

void LibraryFinder::set_aside(const FileMapping& mapping) {
  if (set_aside_.size() >= kMaxSetAside) set_aside_.clear();
  set_aside_.insert_or_assign(mapping.file, mapping.version);
  scanner_.mark_uninteresting(mapping.file, mapping.version);
}

/// Said of candidates only: nobody waits for the others.
void LibraryFinder::refuse(const FileMapping& mapping, const std::string& reason,
                           const std::string& why) {
  if (!is_candidate_name(mapping.path)) return;
  handlers_.refused(
      {reason, fmt::format("{} (pid {}): {}", escape_path(mapping.path), mapping.process.tgid, why),
       mapping.process.tgid, 1});
}

}  // namespace ingero::discover
