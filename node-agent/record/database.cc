// SPDX-License-Identifier: Apache-2.0
#include "record/database.h"

namespace ingero::record {

Error database_error(sqlite3* database, std::string operation, std::string object,
                     std::string hint) {
  return Error{std::move(operation), std::move(object), sqlite3_errmsg(database), std::move(hint),
               sqlite3_extended_errcode(database)};
}

std::string quoted(std::string_view text, char quote) {
  std::string result(1, quote);
  for (const char c : text) {
    if (c == quote) result += quote;
    result += c;
  }
  return result + quote;
}

Status execute(sqlite3* database, const std::string& sql, const std::string& operation) {
  if (sqlite3_exec(database, sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK) return {};
  return fail(database_error(database, operation, ""));
}

Result<Statement> Statement::create(sqlite3* database, std::string_view sql) {
  sqlite3_stmt* statement = nullptr;
  if (sqlite3_prepare_v3(database, sql.data(), static_cast<int>(sql.size()),
                         SQLITE_PREPARE_PERSISTENT, &statement, nullptr) != SQLITE_OK)
    return fail(database_error(database, "prepare a statement", std::string(sql.substr(0, 60))));
  return Statement(statement);
}

std::string Statement::text(int column) const {
  const auto* bytes = sqlite3_column_text(statement_.get(), column);
  if (bytes == nullptr) return {};
  return {reinterpret_cast<const char*>(bytes),
          static_cast<std::size_t>(sqlite3_column_bytes(statement_.get(), column))};
}

Result<std::optional<std::string>> query_text(sqlite3* database, std::string_view sql) {
  auto statement = Statement::create(database, sql);
  if (!statement) return fail(statement.error());
  const int code = statement->step();
  if (code == SQLITE_DONE) return std::nullopt;
  if (code != SQLITE_ROW) return fail(database_error(database, "read", std::string(sql)));
  if (statement->is_null(0)) return std::nullopt;
  return statement->text(0);
}

Result<std::int64_t> query_integer(sqlite3* database, std::string_view sql) {
  auto statement = Statement::create(database, sql);
  if (!statement) return fail(statement.error());
  const int code = statement->step();
  if (code == SQLITE_DONE) return 0;
  if (code != SQLITE_ROW) return fail(database_error(database, "read", std::string(sql)));
  return statement->integer(0);
}

}  // namespace ingero::record
