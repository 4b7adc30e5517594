// SPDX-License-Identifier: Apache-2.0
#include "discover/library_finder.h"

#include <algorithm>
#include <cerrno>
#include <map>

namespace ingero::discover {
namespace {

constexpr std::size_t kMaxSetAside = 60000;  // the BPF map behind it holds 65536

/// The process or its mapping went away while the agent looked.
bool is_gone(const Error& error) { return error.code == ENOENT || error.code == ESRCH; }

std::string refusal_reason(const Error& error) {
  if (error.code == EPERM || error.code == EACCES) return "permission";
  if (error.code != 0) return "open";
  return "file_refused";
}

void refuse(ScanResult& result, const FileMapping& mapping, std::string reason,
            const Error& error) {
  result.refusals.push_back({std::move(reason),
                             fmt::format("{} (pid {}): {}", escape_path(mapping.path),
                                         mapping.process.tgid, error.message()),
                             mapping.process.tgid, 1});
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

Result<ScanResult> LibraryFinder::scan_all() {
  const auto mappings = scanner_.scan_all();
  if (!mappings) return fail(mappings.error());
  return sort_out(*mappings);
}

Result<ScanResult> LibraryFinder::scan_process(std::uint32_t pid) {
  const auto mappings = scanner_.scan_process(pid);
  if (!mappings) return fail(mappings.error());
  return sort_out(*mappings);
}

ScanResult LibraryFinder::sort_out(const std::vector<FileMapping>& mappings) {
  ScanResult result;
  std::map<model::ProcessKey, model::Process> processes;
  for (const FileMapping& mapping : mappings) {
    const Verdict verdict =
        traced_.contains(mapping.file) ? Verdict::kTraced : judge(mapping, result);
    result.incomplete |= verdict == Verdict::kRetry;
    if (verdict != Verdict::kTraced) continue;
    model::Process& process = processes[mapping.process];
    process.key = mapping.process;
    process.cgroup = mapping.cgroup;
    process.comm = mapping.comm;
    result.traced_paths.insert(mapping.path);
    if (std::find(process.libraries.begin(), process.libraries.end(), mapping.file) ==
        process.libraries.end())
      process.libraries.push_back(mapping.file);
  }
  for (auto& [key, process] : processes) result.processes.push_back(std::move(process));
  return result;
}

LibraryFinder::Verdict LibraryFinder::judge(const FileMapping& mapping, ScanResult& result) {
  const auto aside = set_aside_.find(mapping.file);
  if (aside != set_aside_.end() && aside->second == mapping.file_size) return Verdict::kOther;
  if (unreachable_.contains({mapping.process, mapping.file})) return Verdict::kOther;
  const bool candidate = is_candidate_name(mapping.path);
  auto fd = open(mapping);
  if (!fd) {
    if (is_gone(fd.error()) && preference_ != OpenPreference::kProcRoot) return Verdict::kRetry;
    // Says nothing about the file: another process may show the way to it.
    if (candidate) refuse(result, mapping, refusal_reason(fd.error()), fd.error());
    if (unreachable_.size() >= kMaxSetAside) unreachable_.clear();
    unreachable_.emplace(mapping.process, mapping.file);
    return Verdict::kOther;
  }
  ++inspected_;
  auto image = inspect_library(fd->get(), mapping.path);
  if (!image || !*image) {
    if (!image && candidate) refuse(result, mapping, "file_refused", image.error());
    set_aside(mapping);
    return Verdict::kOther;
  }
  const auto identity = scanner_.identity_of(fd->get());
  if (!identity || *identity != mapping.file) {
    const Error changed{"open library", "", "the path names another file than the one mapped",
                        "allow map_files (CAP_CHECKPOINT_RESTORE)"};
    refuse(result, mapping, "identity", identity ? changed : identity.error());
    return Verdict::kRetry;
  }
  traced_.insert(mapping.file);
  result.found.push_back(
      {mapping.file, mapping.path, mapping.process.tgid, std::move(*fd), std::move(**image)});
  return Verdict::kTraced;
}

Result<UniqueFd> LibraryFinder::open(const FileMapping& mapping) const {
  const auto pid = static_cast<pid_t>(mapping.process.tgid);
  // The kernel marks the path of a file that was removed or replaced. What stands there now is another
  // file, most likely; its identity tells.
  std::string_view path = mapping.path;
  constexpr std::string_view kDeleted = " (deleted)";
  if (path.ends_with(kDeleted)) path.remove_suffix(kDeleted.size());
  const auto by = [&](OpenMethod method) {
    return open_mapped_file(pid, mapping.start, mapping.end, path, method);
  };
  switch (preference_) {
    case OpenPreference::kMapFiles: return by(OpenMethod::kMapFiles);
    case OpenPreference::kProcRoot: return by(OpenMethod::kProcRoot);
    case OpenPreference::kAutomatic: break;
  }
  auto fd = by(OpenMethod::kMapFiles);
  if (fd || is_gone(fd.error())) return fd;
  return by(OpenMethod::kProcRoot);
}

void LibraryFinder::set_aside(const FileMapping& mapping) {
  if (set_aside_.size() >= kMaxSetAside) set_aside_.clear();
  set_aside_[mapping.file] = mapping.file_size;
  scanner_.mark_uninteresting(mapping.file, mapping.file_size);
}

}  // namespace ingero::discover
