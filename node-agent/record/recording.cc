// SPDX-License-Identifier: Apache-2.0
#include "record/recording.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <set>

#include "base/memory_limit.h"
#include "record/recording_check.h"
#include "record/schema.h"
#include "record/sql_functions.h"

namespace ingero::record {
namespace {

constexpr std::size_t kMaxFiles = 10;  // SQLite's own limit of attached databases
constexpr std::uint64_t kMaxHeap = std::uint64_t{1} << 30;
constexpr int kOpsBetweenWatches = 100'000;

struct Limit {
  int id, value;
};
constexpr Limit kLimits[] = {
    {SQLITE_LIMIT_LENGTH, 64 << 20},     {SQLITE_LIMIT_SQL_LENGTH, 1 << 20},
    {SQLITE_LIMIT_COLUMN, 500},          {SQLITE_LIMIT_EXPR_DEPTH, 200},
    {SQLITE_LIMIT_COMPOUND_SELECT, 100}, {SQLITE_LIMIT_VDBE_OP, 1 << 20},
    {SQLITE_LIMIT_FUNCTION_ARG, 100},    {SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 1000},
    {SQLITE_LIMIT_VARIABLE_NUMBER, 100}, {SQLITE_LIMIT_TRIGGER_DEPTH, 10},
    {SQLITE_LIMIT_WORKER_THREADS, 0},    {SQLITE_LIMIT_ATTACHED, kMaxFiles},
};

/// In an agent's pod the agent itself needs the other half.
std::int64_t heap_limit() {
  const auto limit = container_memory_limit();
  return static_cast<std::int64_t>(limit ? std::min(*limit / 2, kMaxHeap) : kMaxHeap);
}

/// Whether a large sort finds a folder for its temporary files: those that SQLite looks for.
bool has_temporary_folder() {
  for (const char* name : {"SQLITE_TMPDIR", "TMPDIR"})
    if (const char* folder = std::getenv(name); folder && ::access(folder, W_OK | X_OK) == 0)
      return true;
  for (const char* folder : {"/var/tmp", "/usr/tmp", "/tmp", "."})
    if (::access(folder, W_OK | X_OK) == 0) return true;
  return false;
}

void harden(sqlite3* database) {
  sqlite3_hard_heap_limit64(heap_limit());
  for (const Limit& limit : kLimits) sqlite3_limit(database, limit.id, limit.value);
  const std::pair<int, int> switches[] = {{SQLITE_DBCONFIG_DEFENSIVE, 1},
                                          {SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0},
                                          {SQLITE_DBCONFIG_ENABLE_TRIGGER, 0},
                                          {SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0},
                                          {SQLITE_DBCONFIG_ENABLE_FTS3_TOKENIZER, 0},
                                          {SQLITE_DBCONFIG_DQS_DML, 0},
                                          {SQLITE_DBCONFIG_DQS_DDL, 0}};
  for (const auto& [name, value] : switches) sqlite3_db_config(database, name, value, nullptr);
  // A mapped file that somebody truncates would end the program.
  sqlite3_exec(database,
               "PRAGMA cell_size_check = ON; PRAGMA mmap_size = 0; PRAGMA query_only = ON;",
               nullptr, nullptr, nullptr);
  // An agent's image is read only: there a sort takes memory, up to the limit above.
  if (!has_temporary_folder())
    sqlite3_exec(database, "PRAGMA temp_store = MEMORY", nullptr, nullptr, nullptr);
  add_functions(database);
}

/// As a file: URI. `immutable`: nobody writes it, no lock and no log are looked for.
std::string uri_of(const std::string& path, bool immutable) {
  std::string uri = "file:";
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 || c == '/' || c == '.' || c == '-' || c == '_') uri += c;
    else uri += fmt::format("%{:02x}", byte);
  }
  return uri + (immutable ? "?mode=ro&immutable=1" : "?mode=ro");
}

Status check_file(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return fail_errno("open recording", path);
  if (!S_ISREG(status.st_mode)) return fail({"open recording", path, "not a regular file", ""});
  return {};
}

/// A log with something in it means that the file alone is not the whole recording.
bool has_log(const std::string& path) {
  struct stat status {};
  return ::stat((path + "-wal").c_str(), &status) == 0 && status.st_size > 0;
}

constexpr std::array<std::string_view, 10> kHarmlessPragmas = {
    "table_info",  "table_xinfo",   "table_list",       "index_list",    "index_info",
    "index_xinfo", "database_list", "foreign_key_list", "function_list", "compile_options"};

/// What a statement wanted that a recording does not give.
struct Refused {
  std::string what;
};

std::string refused_text(int action, const char* first) {
  switch (action) {
    case SQLITE_ATTACH:
    case SQLITE_DETACH: return "other files cannot be attached: name them before the SQL";
    case SQLITE_PRAGMA: return fmt::format("PRAGMA {} is not allowed", first ? first : "");
    case SQLITE_FUNCTION: return "this function is not allowed";
    case SQLITE_TRANSACTION:
    case SQLITE_SAVEPOINT: return "transactions are not allowed";
    default: return "recordings are read only: only statements that read are allowed";
  }
}

int authorize(void* context, int action, const char* first, const char* second, const char*,
              const char*) {
  switch (action) {
    case SQLITE_SELECT:
    case SQLITE_READ:
    case SQLITE_RECURSIVE: return SQLITE_OK;
    case SQLITE_UPDATE:  // asked when a table-valued function such as json_each() is first used;
                         // the statement itself must be one that reads
      if (first != nullptr && std::string_view(first) == "sqlite_master") return SQLITE_OK;
      break;
    case SQLITE_FUNCTION:
      if (second != nullptr && std::string_view(second) != "load_extension") return SQLITE_OK;
      break;
    case SQLITE_PRAGMA:
      if (first != nullptr && std::find(kHarmlessPragmas.begin(), kHarmlessPragmas.end(), first) !=
                                  kHarmlessPragmas.end())
        return SQLITE_OK;
      break;
    default: break;
  }
  auto& refused = *static_cast<Refused*>(context);
  if (refused.what.empty()) refused.what = refused_text(action, first);
  return SQLITE_DENY;
}

/// Sets the callbacks of one run of SQL, and takes them away.
class Guard {
 public:
  Guard(sqlite3* database, const Watch& watch) : database_(database), watch_(watch) {
    sqlite3_set_authorizer(database, authorize, &refused);
    sqlite3_progress_handler(database, kOpsBetweenWatches, &Guard::on_progress, this);
  }
  ~Guard() {
    sqlite3_set_authorizer(database_, nullptr, nullptr);
    sqlite3_progress_handler(database_, 0, nullptr, nullptr);
  }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  bool ask() {
    stopped |= watch_ && watch_(rows);
    return stopped;
  }

  Refused refused;
  std::uint64_t rows = 0;
  bool stopped = false;

 private:
  static int on_progress(void* guard) { return static_cast<Guard*>(guard)->ask() ? 1 : 0; }

  sqlite3* database_;
  const Watch& watch_;
};

int ask_watch(void* watch) { return static_cast<ReadWatch*>(watch)->ask() ? 1 : 0; }

model::Value value_of(sqlite3_stmt* statement, int column) {
  using Kind = model::Value::Kind;
  const auto text = [&] {
    const auto* bytes = sqlite3_column_text(statement, column);
    return std::string_view(
        reinterpret_cast<const char*>(bytes),
        bytes == nullptr ? 0 : static_cast<std::size_t>(sqlite3_column_bytes(statement, column)));
  };
  switch (sqlite3_column_type(statement, column)) {
    case SQLITE_INTEGER: return {Kind::kInteger, text()};
    case SQLITE_FLOAT:
      if (!std::isfinite(sqlite3_column_double(statement, column))) return {Kind::kText, text()};
      return {Kind::kReal, text()};
    case SQLITE_TEXT: return {Kind::kText, text()};
    case SQLITE_BLOB: {
      const auto* bytes = sqlite3_column_blob(statement, column);
      return {
          Kind::kBlob,
          {static_cast<const char*>(bytes),
           bytes == nullptr ? 0
                            : static_cast<std::size_t>(sqlite3_column_bytes(statement, column))}};
    }
    default: return {};
  }
}

SqlError error_of(sqlite3* database, const Guard& guard, std::size_t begin) {
  SqlError error;
  error.interrupted = guard.stopped;
  error.message = guard.refused.what.empty() ? sqlite3_errmsg(database) : guard.refused.what;
  const int offset = sqlite3_error_offset(database);
  if (offset >= 0) error.offset = static_cast<int>(begin) + offset;
  return error;
}

int run_statement(sqlite3_stmt* statement, model::RowSink& sink, Guard& guard) {
  const int count = sqlite3_column_count(statement);
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) {
    const char* name = sqlite3_column_name(statement, i);
    names.emplace_back(name != nullptr ? name : "");
  }
  sink.begin(names);
  std::vector<model::Value> values(static_cast<std::size_t>(count));
  int code = SQLITE_DONE;
  while ((code = sqlite3_step(statement)) == SQLITE_ROW) {
    for (int i = 0; i < count; ++i) values[static_cast<std::size_t>(i)] = value_of(statement, i);
    ++guard.rows;
    if (!sink.row(values)) {
      code = SQLITE_DONE;
      break;
    }
  }
  sink.end();
  return code;
}

}  // namespace

Result<Recording> Recording::open(const std::vector<std::string>& paths) {
  if (paths.size() > kMaxFiles)
    return fail({"open recordings", "",
                 fmt::format("{} files, {} at once are possible", paths.size(), kMaxFiles), ""});
  Recording recording;
  for (const std::string& path : paths)
    if (auto status = check_file(path); !status) return fail(status.error());
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const std::string schema = paths.size() == 1 ? "main" : fmt::format("file{}", i + 1);
    if (auto status = recording.add(paths[i], schema); !status) return fail(status.error());
  }
  if (paths.size() > 1)
    if (auto status = recording.make_views(); !status) return fail(status.error());
  return recording;
}

/// One file alone is the main database; several are attached to an empty one.
Status Recording::open_file(const std::string& path, const std::string& schema, bool immutable) {
  const bool alone = schema == "main";
  if (alone || !database_) {
    const std::string name = alone ? uri_of(path, immutable) : ":memory:";
    const int mode = alone ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE;
    sqlite3* database = nullptr;
    const int code = sqlite3_open_v2(name.c_str(), &database,
                                     mode | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX, nullptr);
    database_.reset(database);
    if (code != SQLITE_OK) return fail(database_error(database, "open recording", path));
    harden(database);
  }
  const StepLimit limit(database());
  if (!alone) {
    const std::string sql = fmt::format("ATTACH {} AS {}", quoted(uri_of(path, immutable)), schema);
    if (auto status = execute(database(), sql, "open recording"); !status) {
      if ((status.error().code & 0xff) == SQLITE_INTERRUPT)
        return fail(not_a_recording(path, status.error()));
      return status;
    }
  }
  return check_recording(database(), schema, path);
}

Status Recording::add(const std::string& path, const std::string& schema) {
  Status status = open_file(path, schema, false);
  if (!status && (status.error().code & 0xff) == SQLITE_CANTOPEN && !has_log(path)) {
    // In a folder that may not be written there can be no shared memory; a whole file needs none.
    sqlite3_exec(database(), ("DETACH " + schema).c_str(), nullptr, nullptr, nullptr);
    status = open_file(path, schema, true);
  }
  if (!status) {
    Error error = status.error();
    if (error.object.empty()) error.object = path;
    return fail(std::move(error));
  }
  const StepLimit limit(database());
  const auto host = query_text(database(), fmt::format("SELECT host FROM {}.recording", schema));
  if (!host) return fail(not_a_recording(path, host.error()));
  std::string name = host->value_or(path);
  const auto is_taken = [&](const std::string& wanted) {
    return std::any_of(nodes_.begin(), nodes_.end(),
                       [&](const Node& node) { return node.name == wanted; });
  };
  if (is_taken(name)) name = fmt::format("{} ({})", name, path);
  nodes_.push_back({name, path, schema});
  return {};
}

/// The columns of this version, as they are selected from a file; what an older one has not is NULL there.
Result<std::string> Recording::columns_of(const SchemaTable& table, const Node& node) const {
  auto known = Statement::create(database(), "SELECT name FROM pragma_table_info(?, ?)");
  if (!known) return fail(known.error());
  known->bind(table.name).bind(std::string_view(node.schema));
  std::set<std::string, std::less<>> names;
  while (known->step() == SQLITE_ROW) names.insert(known->text(0));
  std::string columns;
  for (const SchemaColumn& column : table.columns)
    columns += fmt::format(", {}{}", names.empty() || names.contains(column.name) ? "" : "NULL AS ",
                           column.name);
  return columns;
}

Status Recording::make_views() {
  const StepLimit limit(database());
  std::string sql = "PRAGMA query_only = OFF;";
  for (const SchemaTable& table : schema()) {
    sql += fmt::format("CREATE TEMP VIEW {} AS ", table.name);
    const char* separator = "";
    for (const Node& node : nodes_) {
      const auto columns = columns_of(table, node);
      if (!columns) return fail(columns.error());
      sql += fmt::format("{}SELECT {} AS node{} FROM {}.{}", separator, quoted(node.name), *columns,
                         node.schema, table.name);
      separator = " UNION ALL ";
    }
    sql += ";";
  }
  return execute(database(), sql + "PRAGMA query_only = ON;", "put the recordings together");
}

ReadWatch::ReadWatch(const Recording& recording, const Watch& watch)
    : database_(recording.database()), watch_(watch) {
  sqlite3_progress_handler(database_, kOpsBetweenWatches, &ask_watch, this);
}

ReadWatch::~ReadWatch() { sqlite3_progress_handler(database_, 0, nullptr, nullptr); }

tl::expected<void, SqlError> run_sql(const Recording& recording, const std::string& sql,
                                     model::RowSink& sink, const Watch& watch) {
  sqlite3* database = recording.database();
  Guard guard(database, watch);
  const char* rest = sql.c_str();
  bool any = false;
  while (*rest != '\0') {
    const auto begin = static_cast<std::size_t>(rest - sql.c_str());
    sqlite3_stmt* raw = nullptr;
    const int prepared = sqlite3_prepare_v2(database, rest, -1, &raw, &rest);
    const std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)> statement(raw, sqlite3_finalize);
    if (prepared != SQLITE_OK) return tl::unexpected(error_of(database, guard, begin));
    if (raw == nullptr) continue;  // a comment, or blanks
    any = true;
    if (sqlite3_stmt_readonly(raw) == 0)
      return tl::unexpected(
          SqlError{refused_text(SQLITE_INSERT, nullptr), static_cast<int>(begin)});
    if (run_statement(raw, sink, guard) != SQLITE_DONE)
      return tl::unexpected(error_of(database, guard, begin));
    if (guard.stopped) return tl::unexpected(SqlError{"interrupted", -1, true});
  }
  if (!any) return tl::unexpected(SqlError{"there is no statement in it"});
  return {};
}

Result<std::vector<CommentedColumn>> read_comments(const Recording& recording) {
  sqlite3* database = recording.database();
  const StepLimit limit(database);
  const std::string& file = recording.nodes().front().schema;
  auto comment = Statement::create(
      database, fmt::format("SELECT comment FROM {}.schema_comments WHERE table_name = ? AND "
                            "column_name = ?",
                            file));
  if (!comment) return fail(comment.error());
  const auto comment_of = [&](std::string_view table, std::string_view column) {
    comment->bind(table).bind(column);
    std::string text = comment->step() == SQLITE_ROW ? comment->text(0) : "";
    comment->reset();
    return text;
  };
  std::vector<CommentedColumn> result;
  for (const SchemaTable& table : schema()) {
    auto columns =
        Statement::create(database, fmt::format("SELECT name, type FROM pragma_table_info({}, {})",
                                                quoted(table.name), quoted(file)));
    if (!columns) return fail(columns.error());
    int code = columns->step();
    if (code == SQLITE_ROW)
      result.push_back({std::string(table.name), "", table.is_view() ? "view" : "table",
                        comment_of(table.name, "")});
    for (; code == SQLITE_ROW; code = columns->step())
      result.push_back({std::string(table.name), columns->text(0), columns->text(1),
                        comment_of(table.name, columns->text(0))});
    if (code != SQLITE_DONE) return fail(database_error(database, "read the schema", file));
  }
  return result;
}

}  // namespace ingero::record
