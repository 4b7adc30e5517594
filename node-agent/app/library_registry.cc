// SPDX-License-Identifier: Apache-2.0
#include "app/library_registry.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/clock.h"
#include "discover/safe_open.h"

namespace ingero::app {
namespace {

constexpr std::size_t kMaxRefusals = 256;
constexpr std::chrono::seconds kAttachDeadline{30};
constexpr std::array kFailureReasons = {
    "permission", "open",    "read",          "file_refused",     "identity",
    "attach",     "budget",  "file_system",   "function_refused", "too_many_libraries",
    "timeout",    "written", "scan_postponed"};

model::LibraryKind kind_of(discover::LibraryKind kind) {
  switch (kind) {
    case discover::LibraryKind::kNccl: return model::LibraryKind::kNccl;
    case discover::LibraryKind::kRccl: return model::LibraryKind::kRccl;
    case discover::LibraryKind::kCudart: return model::LibraryKind::kCudart;
    case discover::LibraryKind::kCuda: return model::LibraryKind::kCuda;
    case discover::LibraryKind::kOther: return model::LibraryKind::kOther;
  }
  return model::LibraryKind::kOther;
}

/// A stream synchronize serves NCCL (barriers) as well as CUDA; devices and ends of streams only barriers.
bool is_wanted(const model::ApiFunction& function, const ProbeChoice& choice) {
  if (function.source == API_SOURCE_NCCL) return choice.nccl;
  if (function.family == API_CUDA_SET_DEVICE || function.family == API_CUDA_STREAM_END)
    return choice.nccl;
  if (function.family == API_CUDA_STREAM_SYNC) return choice.nccl || choice.cuda;
  return choice.cuda;
}

model::Library describe(const discover::FoundLibrary& found) {
  model::Library library;
  library.file = found.file;
  library.path = discover::escape_path(found.path);
  library.kind = kind_of(found.image.kind);
  library.version = found.image.version;
  library.refused = found.image.refused;
  return library;
}

}  // namespace

void LibraryRegistry::full_scan(discover::ScanResult result) {
  const std::lock_guard lock(mutex_);
  drop_changed(result.changed);
  std::map<model::ProcessKey, model::Process> now;
  std::erase_if(ended_ns_, [&](const auto& entry) { return entry.second < result.began_ns; });
  for (model::Process& process : result.processes) {
    if (ended_ns_.contains(process.key)) continue;
    if (!processes_.contains(process.key)) ++processes_seen_;
    now.emplace(process.key, std::move(process));
  }
  for (auto& [key, process] : processes_) {
    const auto seen = seen_ns_.find(key);
    const bool newer = seen != seen_ns_.end() && seen->second >= result.began_ns;
    if (newer) now.insert_or_assign(key, std::move(process));
    else if (result.left_out.contains(key)) now.try_emplace(key, std::move(process));
  }
  std::erase_if(seen_ns_, [&](const auto& entry) { return entry.second < result.began_ns; });
  processes_ = std::move(now);
  ++full_scans_;
  recount_mappers();
}

void LibraryRegistry::process_scan(std::uint32_t pid, discover::ScanResult result) {
  const std::lock_guard lock(mutex_);
  drop_changed(result.changed);
  std::erase_if(processes_, [&](const auto& entry) {
    if (entry.first.tgid != pid) return false;
    return std::none_of(result.processes.begin(), result.processes.end(),
                        [&](const model::Process& seen) { return seen.key == entry.first; });
  });
  for (model::Process& process : result.processes) {
    if (!processes_.contains(process.key)) ++processes_seen_;
    seen_ns_[process.key] = system_clock_source().monotonic_ns();
    processes_.insert_or_assign(process.key, std::move(process));
  }
  recount_mappers();
}

void LibraryRegistry::scans_postponed(std::uint64_t count) {
  const std::lock_guard lock(mutex_);
  if (count != 0) failures_["scan_postponed"] += count;
}

void LibraryRegistry::process_ended(const model::ProcessKey& process) {
  const std::lock_guard lock(mutex_);
  ended_ns_[process] = system_clock_source().monotonic_ns();
  seen_ns_.erase(process);
  if (processes_.erase(process) != 0) recount_mappers();
}

void LibraryRegistry::discovered(discover::Discovery discovery) {
  const std::lock_guard lock(mutex_);
  attach(discovery);
  merge(discovery.mappers);
  recount_mappers();
}

void LibraryRegistry::refused(const model::Refusal& refusal) {
  const std::lock_guard lock(mutex_);
  note_failure(refusal.reason, refusal.message, refusal.pid);
}

/// Into what the last scan has shown.
void LibraryRegistry::merge(const std::vector<model::Process>& mappers) {
  for (const model::Process& mapper : mappers) {
    seen_ns_[mapper.key] = system_clock_source().monotonic_ns();
    const auto [it, added] = processes_.try_emplace(mapper.key, mapper);
    if (added) {
      ++processes_seen_;
      continue;
    }
    for (const model::FileKey& file : mapper.libraries) {
      auto& libraries = it->second.libraries;
      if (std::find(libraries.begin(), libraries.end(), file) == libraries.end())
        libraries.push_back(file);
    }
  }
}

void LibraryRegistry::attach(discover::Discovery& discovery) {
  const discover::FoundLibrary& found = discovery.library;
  Entry entry;
  entry.library = describe(found);
  entry.attempt = ++attempts_;
  attach::LibraryTarget target{found.file, 0, {}};
  for (const discover::ProbePoint& point : found.image.points) {
    if (!is_wanted(*point.function, choice_)) {
      entry.left_out = true;
      continue;
    }
    target.points.push_back({point.function, point.file_offset});
    entry.wanted.push_back({std::string(point.function->symbol), point.file_offset, point.moved});
  }
  for (const auto& [symbol, reason] : found.image.refused)
    note_failure("function_refused", fmt::format("{}: {}: {}", entry.library.path, symbol, reason),
                 found.pid);
  if (const auto old = libraries_.find(found.file); old != libraries_.end()) drop(old);
  if (target.points.empty()) {
    entry.library.reason = "none of its functions is to be traced";
    libraries_.insert_or_assign(found.file, std::move(entry));
    return;
  }
  const auto index = take_room(discovery, probes_.descriptors_of(target));
  if (!index) {
    note_failure("too_many_libraries", entry.library.path + ": " + index.error().message(),
                 found.pid);
    finder_->forget_for_now(found.file, discovery.mappers);
    return;
  }
  target.index = entry.index = *index;
  versions_[*index] = found.image.version;
  layouts_.add_library(*index, found.image.version, entry.library.kind);
  entry.attaching = true;
  entry.library.reason = "its probes are being attached";
  const DeadlineWorker::Job job{to_number(found.cgroup), "attach probes", entry.library.path,
                                kAttachDeadline};
  const auto accepted = worker_.run<std::shared_ptr<attach::GuardedFile>>(
      job,
      probes_.prepare(
          target, std::make_shared<UniqueFd>(std::move(discovery.library.fd)),
          [opened = found.opened](int fd) { return discover::version_of(fd) == opened; }),
      [this, file = found.file, attempt = entry.attempt, pid = found.pid,
       noticed_ns = discovery.noticed_ns](Result<std::shared_ptr<attach::GuardedFile>> probes) {
        attached(file, attempt, pid, noticed_ns, std::move(probes));
      });
  const auto [place, added] = libraries_.insert_or_assign(found.file, std::move(entry));
  if (!accepted) fail_attach(place, found.pid, accepted.error());
}

/// Of any container that maps it: one that has used up its share takes nothing from the others.
Result<std::uint32_t> LibraryRegistry::take_room(const discover::Discovery& discovery,
                                                 std::size_t descriptors) {
  auto index = room_.take(discovery.library.cgroup, descriptors);
  for (const model::Process& mapper : discovery.mappers) {
    if (index) break;
    index = room_.take(mapper.cgroup, descriptors);
  }
  return index;
}

void LibraryRegistry::attached(const model::FileKey& file, std::uint64_t attempt, std::uint32_t pid,
                               std::uint64_t noticed_ns,
                               Result<std::shared_ptr<attach::GuardedFile>> probes) {
  const std::lock_guard lock(mutex_);
  const auto it = libraries_.find(file);
  if (it == libraries_.end() || it->second.attempt != attempt) {
    if (probes) probes_.discard(std::move(*probes));  // it was dropped meanwhile
    return;
  }
  if (!probes) return fail_attach(it, pid, probes.error());
  if (!probes_.hold(std::move(*probes))) {
    return fail_attach(it, pid,
                       {"attach probes", "", "somebody opened it for writing", "", ETXTBSY});
  }
  finder_->attached(file);
  Entry& entry = it->second;
  entry.attaching = false;
  entry.library.reason.clear();
  entry.library.probes = std::move(entry.wanted);
  entry.library.method = method_;
  if (noticed_ns != 0) entry.library.attach_ns = system_clock_source().monotonic_ns() - noticed_ns;
  spdlog::debug("attached {} functions of {} ({} {}, pid {})", entry.library.probes.size(),
                entry.library.path, to_string(entry.library.kind), entry.library.version, pid);
}

/// What is said of it stays until it is found again.
void LibraryRegistry::fail_attach(Entries::iterator it, std::uint32_t pid, const Error& error) {
  Entry& entry = it->second;
  entry.attaching = false;
  entry.library.reason = error.message();
  const char* reason = error.code == ETXTBSY     ? "written"
                       : error.code == ETIMEDOUT ? "timeout"
                                                 : "attach";
  note_failure(reason, entry.library.path + ": " + entry.library.reason, pid);
  spdlog::warn("attach {} (pid {}): {}", entry.library.path, pid, entry.library.reason);
  probes_.detach(it->first);
  release(entry);
  finder_->forget_for_now(it->first);
}

void LibraryRegistry::written(const model::FileKey& file) {
  const std::lock_guard lock(mutex_);
  const auto it = libraries_.find(file);
  if (it == libraries_.end() || it->second.attaching) return;  // attached() will see it
  note_failure("written",
               it->second.library.path + ": opened for writing; its probes were taken off before",
               0);
  drop(it);
  finder_->forget_for_now(file);
}

/// Their content is another: what was known of them, and the probes, belong to the old one.
void LibraryRegistry::drop_changed(const std::vector<model::FileKey>& files) {
  for (const model::FileKey& file : files) {
    const auto it = libraries_.find(file);
    if (it == libraries_.end()) continue;
    // Without a lease a scan may see the write before the notice of it is taken.
    if (it->second.index != 0)
      note_failure("written", it->second.library.path + ": written to; its probes are taken off",
                   0);
    spdlog::debug("detached {}: it was changed", it->second.library.path);
    drop(it);
  }
}

LibraryRegistry::Entries::iterator LibraryRegistry::drop(Entries::iterator it) {
  probes_.detach(it->first);
  release(it->second);
  return libraries_.erase(it);
}

void LibraryRegistry::release(Entry& entry) {
  if (entry.index == 0) return;
  versions_.erase(entry.index);
  room_.give_back(entry.index);
  entry.index = 0;
}

void LibraryRegistry::set_choice(ProbeChoice choice) {
  const std::lock_guard lock(mutex_);
  const bool more = (choice.nccl && !choice_.nccl) || (choice.cuda && !choice_.cuda);
  choice_ = choice;
  if (!more) return;
  for (auto it = libraries_.begin(); it != libraries_.end();) {
    if (!it->second.left_out) {
      ++it;
      continue;
    }
    finder_->forget(it->first);
    it = drop(it);
  }
}

void LibraryRegistry::note_failure(const std::string& reason, std::string message,
                                   std::uint32_t pid) {
  ++failures_[reason];
  const auto it = refusals_.find(message);
  if (it != refusals_.end()) {
    ++it->second.count;
    return;
  }
  if (refusals_.size() >= kMaxRefusals) return;  // the counter above goes on
  refusals_.emplace(message, model::Refusal{reason, message, pid, 1});
}

void LibraryRegistry::recount_mappers() {
  for (auto& [file, entry] : libraries_) entry.mappers = 0;
  for (const auto& [key, process] : processes_) {
    for (const model::FileKey& file : process.libraries) {
      const auto it = libraries_.find(file);
      if (it != libraries_.end()) ++it->second.mappers;
    }
  }
  const auto now = Clock::now();
  for (auto& [file, entry] : libraries_) {
    if (entry.mappers > 0) entry.unused_since = {};
    else if (entry.unused_since == Clock::time_point{}) entry.unused_since = now;
  }
}

void LibraryRegistry::detach_unused(std::chrono::nanoseconds grace) {
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  for (auto it = libraries_.begin(); it != libraries_.end();) {
    const Entry& entry = it->second;
    if (entry.mappers > 0 || now - entry.unused_since < grace) {
      ++it;
      continue;
    }
    spdlog::debug("detached {}: nobody maps it", entry.library.path);
    finder_->forget(it->first);
    it = drop(it);
  }
}

void LibraryRegistry::fill(model::Snapshot& snapshot) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [key, process] : processes_) snapshot.processes.push_back(process);
  for (const auto& [file, entry] : libraries_) snapshot.libraries.push_back(entry.library);
  std::sort(snapshot.libraries.begin(), snapshot.libraries.end(),
            [](const auto& a, const auto& b) { return a.file < b.file; });
  for (const auto& [message, refusal] : refusals_) snapshot.refusals.push_back(refusal);
  for (const char* reason : kFailureReasons) snapshot.attach_failures[reason] = 0;
  for (const auto& [reason, count] : failures_) snapshot.attach_failures[reason] = count;
  for (model::Communicator& comm : snapshot.communicators) {
    const auto it = versions_.find(comm.library);
    if (it != versions_.end()) comm.library_version = it->second;
  }
  snapshot.method = method_;
  snapshot.full_scans = full_scans_;
  snapshot.processes_seen = processes_seen_;
}

std::vector<model::Process> LibraryRegistry::processes() const {
  const std::lock_guard lock(mutex_);
  std::vector<model::Process> all;
  for (const auto& [key, process] : processes_) all.push_back(process);
  return all;
}

std::unordered_set<model::CgroupId, model::IdentityHash> LibraryRegistry::cgroups() const {
  const std::lock_guard lock(mutex_);
  std::unordered_set<model::CgroupId, model::IdentityHash> all;
  for (const auto& [key, process] : processes_) all.insert(process.cgroup);
  return all;
}

std::set<model::ProcessKey> LibraryRegistry::mappers() const {
  const std::lock_guard lock(mutex_);
  std::unordered_set<model::FileKey, model::IdentityHash> files;
  std::set<model::ProcessKey> chosen;
  for (const auto& [key, process] : processes_) {
    for (const model::FileKey& file : process.libraries)
      if (files.insert(file).second) chosen.insert(key);
  }
  return chosen;
}

std::string LibraryRegistry::version_of(std::uint32_t index) const {
  const std::lock_guard lock(mutex_);
  const auto it = versions_.find(index);
  return it != versions_.end() ? it->second : "";
}

bool LibraryRegistry::empty() const {
  const std::lock_guard lock(mutex_);
  return libraries_.empty();
}

}  // namespace ingero::app
