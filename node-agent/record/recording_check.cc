// SPDX-License-Identifier: Apache-2.0
#include "record/recording_check.h"

#include <fmt/format.h>

#include "record/schema.h"

namespace ingero::record {
namespace {

// A recording's schema has some 30 rows, at about 10 steps each.
constexpr int kMaxSteps = 200'000;

int stop(void*) { return 1; }

/// A name that the file defines, when this program reads it as a table.
const SchemaTable* table_of(const std::string& name) {
  for (const SchemaTable& table : schema())
    if (!table.is_view() && sqlite3_stricmp(name.c_str(), std::string(table.name).c_str()) == 0)
      return &table;
  return nullptr;
}

/// A view would be run as it is read, and may have no end.
Status check_kinds(sqlite3* database, const std::string& schema, const std::string& path) {
  // SQLite itself refuses a file in which these two are not what the definition says.
  auto rows = Statement::create(
      database,
      fmt::format("SELECT name, type FROM {}.sqlite_schema WHERE type <> 'index'", schema));
  if (!rows) return fail(not_a_recording(path, rows.error()));
  int code = SQLITE_DONE;
  while ((code = rows->step()) == SQLITE_ROW)
    if (rows->text(1) != "table" && table_of(rows->text(0)) != nullptr)
      return fail(not_a_recording(path, fmt::format("in it {} is no table, but a {}",
                                                    table_of(rows->text(0))->name, rows->text(1))));
  if (code == SQLITE_DONE) return {};
  return fail(not_a_recording(path, database_error(database, "read the schema", path)));
}

/// A generated column is an expression that is run for each row.
Status check_columns(sqlite3* database, const std::string& file, const std::string& path) {
  auto computed = Statement::create(
      database, "SELECT COUNT(*) FROM pragma_table_xinfo(?, ?) WHERE hidden <> 0");
  if (!computed) return fail(not_a_recording(path, computed.error()));
  for (const SchemaTable& table : schema()) {
    if (table.is_view()) continue;
    computed->bind(table.name).bind(std::string_view(file));
    if (computed->step() != SQLITE_ROW)
      return fail(not_a_recording(path, database_error(database, "read the schema", path)));
    if (computed->integer(0) != 0)
      return fail(not_a_recording(path, fmt::format("{} has computed columns", table.name)));
    computed->reset();
  }
  return {};
}

}  // namespace

StepLimit::StepLimit(sqlite3* database) : database_(database) {
  sqlite3_progress_handler(database, kMaxSteps, stop, nullptr);
}

StepLimit::~StepLimit() { sqlite3_progress_handler(database_, 0, nullptr, nullptr); }

Error not_a_recording(const std::string& path, const std::string& why) {
  return {"open recording", path, why, "write one with: ingero trace --out FILE"};
}

Error not_a_recording(const std::string& path, const Error& error) {
  const bool stopped = (error.code & 0xff) == SQLITE_INTERRUPT;
  return not_a_recording(path,
                         stopped ? "it takes longer to open than any recording does" : error.cause);
}

Status check_recording(sqlite3* database, const std::string& schema, const std::string& path) {
  const auto id = query_integer(database, fmt::format("PRAGMA {}.application_id", schema));
  if (!id) {
    Error error = id.error();
    if ((error.code & 0xff) == SQLITE_CANTOPEN) return fail(std::move(error));
    return fail(not_a_recording(path, error));
  }
  if (*id != kApplicationId) return fail(not_a_recording(path, "not a recording of ingero"));
  const auto version = query_integer(database, fmt::format("PRAGMA {}.user_version", schema));
  if (!version) return fail(not_a_recording(path, version.error()));
  if (*version > kSchemaVersion)
    return fail({"open recording", path, "made by a newer ingero", "use that version"});
  // What a recording has no use for, and an attacker would.
  const auto odd = query_integer(
      database, fmt::format("SELECT COUNT(*) FROM {}.sqlite_schema WHERE type = 'trigger' OR "
                            "ltrim(sql) LIKE 'CREATE VIRTUAL%' OR rootpage = 0 AND type = 'table'",
                            schema));
  if (!odd) return fail(not_a_recording(path, odd.error()));
  if (*odd != 0) return fail(not_a_recording(path, "it has tables that no recording has"));
  if (auto kinds = check_kinds(database, schema, path); !kinds) return kinds;
  return check_columns(database, schema, path);
}

}  // namespace ingero::record
