// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace ingero::app {

struct ReportOptions {
  std::vector<std::string> files;
  bool html = false;
  std::string out;  ///< empty or "-": stdout
};

struct ExportOptions {
  std::vector<std::string> files;
  std::string format = "perfetto";  ///< or "sqlite": a copy of the recording
  std::string out;                  ///< empty or "-": stdout
};

/// Exit status: 0; 2 it could not be made; 130 interrupted.
int run_report(const ReportOptions& options);
int run_export(const ExportOptions& options);

}  // namespace ingero::app
