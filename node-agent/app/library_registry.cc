// SPDX-License-Identifier: Apache-2.0
#include "app/library_registry.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>

#include "base/clock.h"

namespace ingero::app {
namespace {

constexpr std::size_t kMaxRefusals = 256;
constexpr std::array kFailureReasons = {"permission", "open",   "file_refused",
                                        "identity",   "attach", "too_many_libraries"};

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

/// A stream synchronize serves NCCL (barriers) as well as CUDA.
bool is_wanted(const model::ApiFunction& function, const ProbeChoice& choice) {
  if (function.source == API_SOURCE_NCCL) return choice.nccl;
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
  attach_found(std::move(result.found), 0);
  const std::lock_guard lock(mutex_);
  std::map<model::ProcessKey, model::Process> now;
  for (model::Process& process : result.processes) {
    if (!processes_.contains(process.key)) ++processes_seen_;
    now.emplace(process.key, std::move(process));
  }
  processes_ = std::move(now);
  ++full_scans_;
  add_refusals(result.refusals);
  recount_mappers();
}

void LibraryRegistry::process_scan(std::uint32_t pid, discover::ScanResult result,
                                   std::uint64_t noticed_ns) {
  attach_found(std::move(result.found), noticed_ns);
  const std::lock_guard lock(mutex_);
  std::erase_if(processes_, [&](const auto& entry) {
    if (entry.first.tgid != pid) return false;
    return std::none_of(result.processes.begin(), result.processes.end(),
                        [&](const model::Process& seen) { return seen.key == entry.first; });
  });
  for (model::Process& process : result.processes) {
    if (!processes_.contains(process.key)) ++processes_seen_;
    processes_.insert_or_assign(process.key, std::move(process));
  }
  add_refusals(result.refusals);
  recount_mappers();
}

void LibraryRegistry::process_ended(const model::ProcessKey& process) {
  const std::lock_guard lock(mutex_);
  if (processes_.erase(process) != 0) recount_mappers();
}

void LibraryRegistry::attach_found(std::vector<discover::FoundLibrary> found,
                                   std::uint64_t noticed_ns) {
  for (discover::FoundLibrary& library : found) attach_one(library, noticed_ns);
}

void LibraryRegistry::attach_one(discover::FoundLibrary& found, std::uint64_t noticed_ns) {
  Entry entry;
  entry.library = describe(found);
  attach::LibraryTarget target{found.file, 0, {}};
  for (const discover::ProbePoint& point : found.image.points) {
    if (!is_wanted(*point.function, choice_)) {
      entry.left_out = true;
      continue;
    }
    target.points.push_back({point.function, point.file_offset});
    entry.library.probes.push_back(
        {std::string(point.function->symbol), point.file_offset, point.moved});
  }
  {
    const std::lock_guard lock(mutex_);
    // Without an index the communicators of the library are known by their arguments only.
    if (versions_.size() <= COOKIE_LIBRARY_MAX) {
      target.index = static_cast<std::uint32_t>(versions_.size());
      versions_.push_back(found.image.version);
    }
  }
  entry.index = target.index;
  layouts_.add_library(target.index, found.image.version);
  if (target.points.empty()) {
    entry.library.reason = "none of its functions is to be traced";
  } else if (auto status = probes_.attach(target, found.fd.get()); !status) {
    entry.library.reason = status.error().message();
    entry.library.probes.clear();  // they are those in place
  } else {
    entry.library.method = method_;
    if (noticed_ns != 0)
      entry.library.attach_ns = system_clock_source().monotonic_ns() - noticed_ns;
  }
  const std::lock_guard lock(mutex_);
  if (target.index == 0)
    note_failure("too_many_libraries", "more library files than indexes", found.pid);
  if (!target.points.empty() && entry.library.method == model::AttachMethod::kNone) {
    note_failure("attach", entry.library.path + ": " + entry.library.reason, found.pid);
    finder_.forget(found.file);  // tried again at the next scan
    spdlog::warn("attach {} (pid {}): {}", entry.library.path, found.pid, entry.library.reason);
  } else {
    spdlog::debug("attached {} functions of {} ({} {}, pid {})", target.points.size(),
                  entry.library.path, to_string(entry.library.kind), entry.library.version,
                  found.pid);
  }
  libraries_.insert_or_assign(found.file, std::move(entry));
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
    probes_.detach(it->first);
    finder_.forget(it->first);
    it = libraries_.erase(it);
  }
}

void LibraryRegistry::add_refusals(const std::vector<model::Refusal>& refusals) {
  for (const model::Refusal& refusal : refusals)
    note_failure(refusal.reason, refusal.message, refusal.pid);
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
    probes_.detach(it->first);
    finder_.forget(it->first);
    it = libraries_.erase(it);
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
    if (comm.library < versions_.size()) comm.library_version = versions_[comm.library];
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

std::string LibraryRegistry::version_of(std::uint32_t index) const {
  const std::lock_guard lock(mutex_);
  return index < versions_.size() ? versions_[index] : "";
}

bool LibraryRegistry::empty() const {
  const std::lock_guard lock(mutex_);
  return libraries_.empty();
}

}  // namespace ingero::app
