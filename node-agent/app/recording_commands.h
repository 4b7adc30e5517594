// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace ingero::app {

struct ReportOptions {
  std::vector<std::string> files;
  bool html = false;
  std::string out;  ///< empty: stdout
};

struct ExportOptions {
  std::vector<std::string> files;
  std::string format = "perfetto";
  std::string out;  ///< empty: stdout
};

/// Exit status: 0; 2 it could not be made; 130 interrupted.
int run_report(const ReportOptions& options);
int run_export(const ExportOptions& options);

}  // namespace ingero::app
