// SPDX-License-Identifier: Apache-2.0
#include "record/recording_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "record/schema.h"

namespace ingero::record {
namespace {

constexpr off_t kReserveBytes = 1 << 20;
constexpr std::uint64_t kPageBytes = 8192;
constexpr std::uint64_t kSlackBytes = 2 << 20;

std::uint64_t size_of(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 ? static_cast<std::uint64_t>(status.st_size) : 0;
}

std::string folder_of(const std::string& path) {
  const auto slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

/// Room that the end of the recording can have when the disk is full. Not every file system can.
UniqueFd reserve_room(const std::string& path) {
  UniqueFd fd(::open(folder_of(path).c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600));
  if (fd && ::fallocate(fd.get(), 0, 0, kReserveBytes) != 0) fd.reset();
  return fd;
}

}  // namespace

std::optional<std::uint64_t> free_bytes_of(const std::string& path) {
  struct statvfs status {};
  if (::statvfs(path.c_str(), &status) != 0) return std::nullopt;
  return std::uint64_t{status.f_bavail} * status.f_frsize;
}

Result<RecordingFile> RecordingFile::create(const std::string& path,
                                            const std::optional<std::pair<uid_t, gid_t>>& owner,
                                            FreeBytes free_bytes, const FileTuning& tuning) {
  RecordingFile file(path, free_bytes ? std::move(free_bytes) : free_bytes_of);
  // Never follows what somebody else has put there.
  const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0640));
  if (!fd)
    return fail_errno("make the recording", path,
                      errno == EEXIST ? "give another name, or remove it" : "");
  if (owner && ::fchown(fd.get(), owner->first, owner->second) != 0)
    return fail_errno("give the recording to its owner", path);
  if (::fstat(fd.get(), &file.identity_) != 0) return fail_errno("read status", path);
  file.reserve_ = reserve_room(path);
  sqlite3* database = nullptr;
  const int code = sqlite3_open_v2(path.c_str(), &database,
                                   SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, nullptr);
  file.database_.reset(database);
  Status made = code == SQLITE_OK ? Status{} : fail(database_error(database, "open", path));
  // A program that queries the file meanwhile may hold the log for a moment.
  if (made) sqlite3_busy_timeout(database, 2000);
  if (made)
    made = execute(database,
                   fmt::format("PRAGMA page_size = {}; PRAGMA auto_vacuum = NONE; "
                               "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; "
                               "PRAGMA cache_size = -{}; PRAGMA temp_store = MEMORY; "
                               "PRAGMA wal_autocheckpoint = {};",
                               kPageBytes, tuning.cache_bytes >> 10, tuning.log_bytes / kPageBytes),
                   "set up the recording");
  if (made) made = execute(database, schema_sql(), "make the tables of the recording");
  if (made) return file;
  Error error = made.error();
  error.object = path;
  file.database_.reset();
  for (const char* suffix : {"", "-wal", "-shm"}) ::unlink((path + suffix).c_str());
  return fail(std::move(error));
}

bool RecordingFile::is_in_place() const {
  struct stat now {};
  return ::stat(path_.c_str(), &now) == 0 && now.st_dev == identity_.st_dev &&
         now.st_ino == identity_.st_ino;
}

std::uint64_t RecordingFile::bytes() const { return size_of(path_) + size_of(path_ + "-wal"); }

bool RecordingFile::has_room_for(std::uint64_t more) const {
  const auto free = free_bytes_(path_);
  return !free || *free >= size_of(path_ + "-wal") + more + kSlackBytes;
}

Status RecordingFile::close() {
  release_reserve();
  const Status folded =
      execute(database_.get(), "PRAGMA wal_checkpoint(TRUNCATE); PRAGMA journal_mode = DELETE;",
              "fold the log into the recording");
  database_.reset();
  return folded;
}

}  // namespace ingero::record
