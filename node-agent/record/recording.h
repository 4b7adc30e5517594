// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/row_sink.h"
#include "record/database.h"
#include "record/schema.h"

namespace ingero::record {

/// Recordings that are read: one, or several as one database. The files may come from anybody: nothing in
/// them is trusted, nothing is ever written.
class Recording {
 public:
  struct Node {
    std::string name;  ///< value of the node column: the host, made unique
    std::string path;
    std::string schema;  ///< name of the attached database
  };

  /// Of several files, every table and view has a first column `node`.
  static Result<Recording> open(const std::vector<std::string>& paths);

  sqlite3* database() const { return database_.get(); }
  const std::vector<Node>& nodes() const { return nodes_; }

 private:
  Recording() = default;
  Status add(const std::string& path, const std::string& schema);
  Status open_file(const std::string& path, const std::string& schema, bool immutable);
  Result<std::string> columns_of(const SchemaTable& table, const Node& node) const;
  Status make_views();

  DatabaseHandle database_;
  std::vector<Node> nodes_;
};

/// Called now and then while a query runs, with the rows so far; true ends it.
using Watch = std::function<bool(std::uint64_t rows)>;

/// While it lives, whatever is read from the recording ends with an error when the watch says so: also a
/// statement that finds no row in a file that has no end.
class ReadWatch {
 public:
  ReadWatch(const Recording& recording, const Watch& watch);
  ~ReadWatch();
  ReadWatch(const ReadWatch&) = delete;
  ReadWatch& operator=(const ReadWatch&) = delete;

  /// Asks with what was counted last.
  bool ask() const { return watch_ && watch_(count_); }
  bool ask(std::uint64_t count) {
    count_ = count;
    return ask();
  }

 private:
  sqlite3* database_;
  const Watch& watch_;
  std::uint64_t count_ = 0;
};

struct SqlError {
  std::string message;
  int offset = -1;           ///< byte in the SQL that the message is about; -1: none
  bool interrupted = false;  ///< by the watch
};

/// Runs statements that read, one after the other. Anything that writes, attaches or changes settings is
/// refused.
tl::expected<void, SqlError> run_sql(const Recording& recording, const std::string& sql,
                                     model::RowSink& sink, const Watch& watch);

/// The comments of the recording's tables: table, column ("": the table itself), type, comment.
struct CommentedColumn {
  std::string table, column, type, comment;
  bool operator==(const CommentedColumn&) const = default;
};
Result<std::vector<CommentedColumn>> read_comments(const Recording& recording);

}  // namespace ingero::record
