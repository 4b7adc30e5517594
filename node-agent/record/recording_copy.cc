// SPDX-License-Identifier: Apache-2.0
// File format: https://www.sqlite.org/fileformat2.html
#include "record/recording_copy.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/unique_fd.h"
#include "record/recording_file.h"

namespace ingero::record {
namespace {

constexpr std::size_t kBlockBytes = 256 << 10;
constexpr int kPagesPerStep = 64;
// Of the header: which programs may write and read the file; 2 says that a log may lie beside it.
constexpr std::size_t kWriteVersion = 18, kReadVersion = 19, kHeaderBytes = 100;
constexpr char kNoLog = 1;

Error copy_error(const std::string& object, std::string cause, std::string hint = "") {
  return {"copy recording", object, std::move(cause), std::move(hint)};
}

/// The file as SQLite has it open: a descriptor of our own would, when it is closed, take SQLite's locks
/// away.
Result<sqlite3_file*> file_of(sqlite3* database, const std::string& path) {
  sqlite3_file* file = nullptr;
  sqlite3_file_control(database, "main", SQLITE_FCNTL_FILE_POINTER, &file);
  if (file == nullptr || file->pMethods == nullptr) return fail(copy_error(path, "it is not open"));
  return file;
}

Status stream_file(sqlite3* database, const std::string& path,
                   const std::function<bool(std::string_view)>& write, const Watch& watch) {
  const auto file = file_of(database, path);
  if (!file) return fail(file.error());
  sqlite3_int64 size = 0;
  if ((*file)->pMethods->xFileSize(*file, &size) != SQLITE_OK ||
      size < static_cast<sqlite3_int64>(kHeaderBytes))
    return fail(copy_error(path, "it has no header"));
  std::string block;
  for (sqlite3_int64 at = 0; at < size; at += static_cast<sqlite3_int64>(block.size())) {
    block.resize(static_cast<std::size_t>(
        std::min<sqlite3_int64>(size - at, static_cast<sqlite3_int64>(kBlockBytes))));
    const int wanted = static_cast<int>(block.size());
    if ((*file)->pMethods->xRead(*file, block.data(), wanted, at) != SQLITE_OK)
      return fail(copy_error(path, fmt::format("cannot be read at byte {}", at)));
    if (at == 0) block[kWriteVersion] = block[kReadVersion] = kNoLog;
    if (!write(block)) return fail(copy_error(path, "the output takes no more"));
    if (watch && watch(static_cast<std::uint64_t>(at) + block.size()))
      return fail(copy_error(path, "interrupted"));
  }
  return {};
}

/// An empty database in a file whose name is gone at once: nothing is left behind, however this ends.
Result<DatabaseHandle> temporary_database(const std::string& folder) {
  std::string name = folder + "/.ingero-copy-XXXXXX";
  const UniqueFd made(::mkostemp(name.data(), O_CLOEXEC));
  if (!made) return fail_errno("make a temporary file", folder);
  sqlite3* database = nullptr;
  const int code = sqlite3_open_v2(name.c_str(), &database,
                                   SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, nullptr);
  DatabaseHandle handle(database);
  Status ready;
  if (code != SQLITE_OK) ready = fail(database_error(database, "open", name));
  // No journal and no waiting for the disk: whatever goes wrong, this file is thrown away.
  if (ready)
    ready = execute(database,
                    "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; "
                    "PRAGMA locking_mode = EXCLUSIVE; PRAGMA mmap_size = 0;",
                    "set up a temporary file");
  ::unlink(name.c_str());
  if (!ready) return fail(ready.error());
  return handle;
}

struct Finish {
  void operator()(sqlite3_backup* backup) const { sqlite3_backup_finish(backup); }
};

Status fill(sqlite3* target, sqlite3* source, const std::string& path, const Watch& watch) {
  std::unique_ptr<sqlite3_backup, Finish> backup(
      sqlite3_backup_init(target, "main", source, "main"));
  if (!backup) return fail(database_error(target, "copy recording", path));
  int code = SQLITE_OK;
  while ((code = sqlite3_backup_step(backup.get(), kPagesPerStep)) == SQLITE_OK)
    if (watch && watch(0)) return fail(copy_error(path, "interrupted"));
  if (code == SQLITE_DONE) return {};
  Error error = copy_error(path, sqlite3_errstr(code));
  error.code = code;
  return fail(std::move(error));
}

Result<DatabaseHandle> put_together(sqlite3* source, const std::string& path,
                                    const std::vector<std::string>& folders, const Watch& watch) {
  const auto pages = query_integer(source, "PRAGMA page_count");
  if (!pages) return fail(pages.error());
  const auto page_size = query_integer(source, "PRAGMA page_size");
  if (!page_size) return fail(page_size.error());
  const auto wanted = static_cast<std::uint64_t>(*pages) * static_cast<std::uint64_t>(*page_size);
  std::string refused;
  for (const std::string& folder : folders) {
    if (!refused.empty()) refused += "; ";
    const auto free = free_bytes_of(folder);
    if (free && *free < wanted) {
      refused += fmt::format("{}: {} bytes are free, {} are needed", folder, *free, wanted);
      continue;
    }
    auto target = temporary_database(folder);
    if (!target) {
      refused += fmt::format("{}: {}", folder, target.error().cause);
      continue;
    }
    const auto filled = fill(target->get(), source, path, watch);
    if (filled) return target;
    if ((filled.error().code & 0xff) != SQLITE_FULL) return fail(filled.error());
    refused += fmt::format("{}: {}", folder, filled.error().cause);
  }
  return fail(copy_error(path, "a recording that has not ended needs a temporary file: " + refused,
                         "make one of these writable, or give -o FILE where there is room"));
}

}  // namespace

Status copy_recording(const Recording& recording, const std::vector<std::string>& folders,
                      const std::function<bool(std::string_view)>& write, const Watch& watch) {
  const std::string& path = recording.nodes().front().path;
  sqlite3* source = recording.database();
  // From the first read on, this connection sees one moment, and SQLite keeps it until the end.
  if (auto begun = execute(source, "BEGIN; SELECT COUNT(*) FROM sqlite_schema", "copy recording");
      !begun)
    return begun;
  const auto journal = query_text(source, "PRAGMA journal_mode");
  if (!journal) return fail(journal.error());
  if (*journal != "wal") return stream_file(source, path, write, watch);
  const auto whole = put_together(source, path, folders, watch);
  if (!whole) return fail(whole.error());
  // Whoever takes the copy may be slow; the recorder is not to wait for that.
  if (auto ended = execute(source, "COMMIT", "copy recording"); !ended) return ended;
  return stream_file(whole->get(), path, write, watch);
}

}  // namespace ingero::record
