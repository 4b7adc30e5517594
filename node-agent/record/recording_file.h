// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "base/result.h"
#include "base/unique_fd.h"
#include "record/database.h"

namespace ingero::record {

struct FileTuning {
  std::uint64_t cache_bytes = 16 << 20;  ///< of SQLite's pages
  std::uint64_t log_bytes = 8 << 20;     ///< about the most that the write-ahead log takes
};

/// The file of a recording that is being made: its creation, its size, the room around it.
class RecordingFile {
 public:
  using FreeBytes = std::function<std::optional<std::uint64_t>(const std::string& path)>;

  /// Makes a file that did not exist, with the schema in it.
  static Result<RecordingFile> create(const std::string& path,
                                      const std::optional<std::pair<uid_t, gid_t>>& owner,
                                      FreeBytes free_bytes, const FileTuning& tuning = {});

  sqlite3* database() const { return database_.get(); }
  const std::string& path() const { return path_; }

  /// False when the path leads elsewhere or nowhere by now.
  bool is_in_place() const;
  /// File and write-ahead log.
  std::uint64_t bytes() const;
  /// Whether `more` bytes and the final checkpoint fit; true where nobody knows.
  bool has_room_for(std::uint64_t more) const;

  /// Gives the room back that was kept for the end of the recording.
  void release_reserve() { reserve_.reset(); }

  /// Folds the write-ahead log in, so that the recording is one plain file.
  Status close();

 private:
  RecordingFile(std::string path, FreeBytes free_bytes)
      : path_(std::move(path)), free_bytes_(std::move(free_bytes)) {}

  std::string path_;
  FreeBytes free_bytes_;
  DatabaseHandle database_;
  UniqueFd reserve_;  ///< nameless file: goes with the process
  struct stat identity_ {};
};

/// Of statvfs(); nullopt: it failed.
std::optional<std::uint64_t> free_bytes_of(const std::string& path);

}  // namespace ingero::record
