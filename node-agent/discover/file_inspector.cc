// SPDX-License-Identifier: Apache-2.0
#include "discover/file_inspector.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <thread>

#include "base/clock.h"
#include "discover/safe_open.h"

namespace ingero::discover {
namespace {

using Outcome = Inspection::Outcome;

/// The process or its mapping went away while the agent looked.
bool is_gone(const Error& error) { return error.code == ENOENT || error.code == ESRCH; }

/// What another look by way of the same process would say again.
bool is_lasting(const Error& error) {
  constexpr std::array kLasting = {0,      EPERM,   EACCES, ENOENT, ESRCH,
                                   EINVAL, ENOTDIR, ELOOP,  ENXIO,  ENAMETOOLONG};
  return std::find(kLasting.begin(), kLasting.end(), error.code) != kLasting.end();
}

Result<UniqueFd> open(const FileMapping& mapping, OpenPreference preference) {
  const auto pid = static_cast<pid_t>(mapping.tid);
  // The kernel marks the path of a file that was removed or replaced. What stands there now is another
  // file, most likely; its identity tells.
  std::string_view path = mapping.path;
  constexpr std::string_view kDeleted = " (deleted)";
  if (path.ends_with(kDeleted)) path.remove_suffix(kDeleted.size());
  const auto by = [&](OpenMethod method) {
    return open_mapped_file(pid, mapping.start, mapping.end, path, method);
  };
  switch (preference) {
    case OpenPreference::kMapFiles: return by(OpenMethod::kMapFiles);
    case OpenPreference::kProcRoot: return by(OpenMethod::kProcRoot);
    case OpenPreference::kAutomatic: break;
  }
  auto fd = by(OpenMethod::kMapFiles);
  if (fd || is_gone(fd.error())) return fd;
  return by(OpenMethod::kProcRoot);
}

Inspection failed(Outcome outcome, std::string reason, Error error) {
  return {outcome, std::nullopt, std::move(reason), std::move(error), {}};
}

Inspection not_opened(const Error& error, OpenPreference preference) {
  if (is_gone(error) && preference != OpenPreference::kProcRoot)
    return failed(Outcome::kGone, "", error);
  const bool denied = error.code == EPERM || error.code == EACCES;
  const char* reason = denied ? "permission" : error.code != 0 ? "open" : "file_refused";
  return failed(is_lasting(error) ? Outcome::kUnreachable : Outcome::kFailed, reason, error);
}

/// An error with a code is the system's and passes; one without is the content's.
Inspection not_read(const Error& error) {
  if (error.code == E2BIG) return failed(Outcome::kRefused, "budget", error);
  if (error.code != 0) return failed(Outcome::kFailed, "read", error);
  return failed(Outcome::kRefused, "file_refused", error);
}

/// Two writes within a tick of the kernel's clock leave the same time: a file that was changed just now is
/// read when the next write will show.
FileVersion settled_version(int fd) {
  constexpr std::uint64_t kTick = 20'000'000;
  const FileVersion version = version_of(fd);
  const std::uint64_t last = std::max(version.mtime_ns, version.ctime_ns);
  const std::uint64_t now = system_clock_source().realtime_ns();
  if (now < last || now - last >= kTick) return version;
  std::this_thread::sleep_for(std::chrono::nanoseconds(kTick));
  return version_of(fd);
}

Inspection inspect(const MappingScanner& scanner, const FileMapping& mapping,
                   OpenPreference preference, std::uint64_t& bytes) {
  auto fd = open(mapping, preference);
  if (!fd) return not_opened(fd.error(), preference);
  const FileVersion opened = settled_version(fd->get());
  auto image = inspect_library(fd->get(), mapping.path, &bytes);
  if (!image) return not_read(image.error());
  if (!*image) return failed(Outcome::kOther, "", {});
  const auto identity = scanner.identity_of(fd->get());
  if (!identity) return failed(Outcome::kFailed, "identity", identity.error());
  if (*identity != mapping.file) {
    return failed(Outcome::kFailed, "identity",
                  {"open library", "", "the path names another file than the one mapped",
                   "allow map_files (CAP_CHECKPOINT_RESTORE)"});
  }
  Inspection found;
  found.outcome = Outcome::kTraced;
  found.library =
      FoundLibrary{mapping.file,   mapping.version, mapping.path,       mapping.process.tgid,
                   mapping.cgroup, std::move(*fd),  std::move(**image), opened};
  return found;
}

}  // namespace

FileVersion version_of(int fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return {};
  const auto nanoseconds = [](const timespec& time) {
    return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 +
           static_cast<std::uint64_t>(time.tv_nsec);
  };
  return {static_cast<std::uint64_t>(info.st_size), nanoseconds(info.st_mtim),
          nanoseconds(info.st_ctim)};
}

Inspection inspect_mapping(MappingScanner scanner, const FileMapping& mapping,
                           OpenPreference preference) {
  const std::chrono::nanoseconds before = thread_cpu_time();
  std::uint64_t bytes = 0;
  Inspection inspection = inspect(scanner, mapping, preference, bytes);
  inspection.cost = {thread_cpu_time() - before, bytes};
  return inspection;
}

}  // namespace ingero::discover
