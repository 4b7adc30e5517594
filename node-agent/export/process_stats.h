// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

namespace ingero::exporting {

/// What every Prometheus client tells about its own process. A value that could not be read is
/// missing.
struct ProcessStats {
  std::optional<double> cpu_seconds;
  std::optional<double> resident_bytes;
  std::optional<double> virtual_bytes;
  std::optional<double> open_fds;
  std::optional<double> max_fds;  ///< missing when there is no limit
  std::optional<double> start_time_unix_seconds;
  std::optional<double> threads;
};

/// Of this process. `proc`: where procfs is mounted.
ProcessStats read_process_stats(const std::string& proc = "/proc");

}  // namespace ingero::exporting
