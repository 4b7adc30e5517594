// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace ingero::app {

struct QueryOptions {
  /// Recordings, and the SQL behind them unless `sql_file` is given or it comes from stdin.
  std::vector<std::string> words;
  std::string sql_file;  ///< "-": stdin
  std::string format = "table";
  bool schema = false;
};

/// Exit status: 0; 1 the SQL is wrong or could not be run to its end; 2 nothing could be run;
/// 130 interrupted.
int run_query(const QueryOptions& options);

}  // namespace ingero::app
