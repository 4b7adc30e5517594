// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ingero::record {

/// "Inge": tells a recording from any other SQLite file.
constexpr int kApplicationId = 0x496e6765;
/// Grows when a reader of this version would misread a newer file.
constexpr int kSchemaVersion = 1;

struct SchemaColumn {
  std::string_view name;
  std::string_view type;  ///< with its constraints; a view's columns have the type alone
  std::string_view comment;
};

struct SchemaTable {
  std::string_view name;
  std::string_view comment;
  std::vector<SchemaColumn> columns;
  std::string_view keys;    ///< table constraints; empty: none
  std::string_view select;  ///< a view's definition; empty: a table
  bool is_view() const { return !select.empty(); }
};

/// Every table and view of a recording, first those that people query.
std::span<const SchemaTable> schema();

/// Creates everything in an empty database, with the comments in the table schema_comments.
std::string schema_sql();

}  // namespace ingero::record
