// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sqlite3.h>

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace ingero::record {

struct CloseDatabase {
  void operator()(sqlite3* database) const { sqlite3_close_v2(database); }
};
using DatabaseHandle = std::unique_ptr<sqlite3, CloseDatabase>;

/// The error of the last call on `database`; `code` is SQLite's extended result code.
Error database_error(sqlite3* database, std::string operation, std::string object,
                     std::string hint = "");

/// Text for an SQL string literal or identifier: doubles the quotes and adds the outer ones.
std::string quoted(std::string_view text, char quote = '\'');

/// Statements without rows or parameters.
Status execute(sqlite3* database, const std::string& sql, const std::string& operation);

/// One prepared statement. Parameters are bound in order; a value that is not there is NULL.
class Statement {
 public:
  static Result<Statement> create(sqlite3* database, std::string_view sql);

  template <std::integral Number>
  Statement& bind(Number value) {
    sqlite3_bind_int64(statement_.get(), ++bound_, static_cast<std::int64_t>(value));
    return *this;
  }
  Statement& bind(std::string_view text) {
    sqlite3_bind_text(statement_.get(), ++bound_, text.data(), static_cast<int>(text.size()),
                      SQLITE_TRANSIENT);
    return *this;
  }
  Statement& bind(const char*) = delete;
  Statement& bind_null() {
    sqlite3_bind_null(statement_.get(), ++bound_);
    return *this;
  }
  template <typename Value>
  Statement& bind(const std::optional<Value>& value) {
    return value ? bind(*value) : bind_null();
  }

  /// Runs a statement without rows and makes it ready for the next one; SQLite's result code.
  int run() {
    const int code = sqlite3_step(statement_.get());
    reset();
    return code == SQLITE_ROW ? SQLITE_DONE : code;
  }
  /// SQLITE_ROW, SQLITE_DONE or an error.
  int step() { return sqlite3_step(statement_.get()); }
  void reset() {
    sqlite3_reset(statement_.get());
    bound_ = 0;
  }
  sqlite3_stmt* get() const { return statement_.get(); }

  bool is_null(int column) const {
    return sqlite3_column_type(statement_.get(), column) == SQLITE_NULL;
  }
  std::int64_t integer(int column) const { return sqlite3_column_int64(statement_.get(), column); }
  std::string text(int column) const;

 private:
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
  };
  explicit Statement(sqlite3_stmt* statement) : statement_(statement) {}

  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
  int bound_ = 0;
};

/// The first column of the first row; nullopt: no row, or NULL.
Result<std::optional<std::string>> query_text(sqlite3* database, std::string_view sql);
Result<std::int64_t> query_integer(sqlite3* database, std::string_view sql);

}  // namespace ingero::record
