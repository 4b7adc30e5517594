// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "model/row_sink.h"

namespace ingero::cli {

enum class QueryFormat { kTable, kCsv, kJson, kMarkdown };

/// table, csv, json, markdown.
std::optional<QueryFormat> parse_query_format(std::string_view name);

/// Takes text; returns false when nobody reads it any more.
using TextOutput = std::function<bool(std::string_view)>;

struct QueryOutputOptions {
  QueryFormat format = QueryFormat::kTable;
  bool to_terminal = false;  ///< nothing that a file holds may steer the terminal
  bool colour = false;
};

/// Prints results of queries as they come. A table's columns are as wide as its first 1000 rows need.
std::unique_ptr<model::RowSink> make_query_output(const QueryOutputOptions& options,
                                                  TextOutput output);

/// The message and the line of the SQL that it is about, with a mark below the place. `offset` counts
/// bytes; -1: the message alone.
std::string render_sql_error(std::string_view message, std::string_view sql, int offset);

}  // namespace ingero::cli
