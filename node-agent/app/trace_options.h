// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/listen_address.h"
#include "config/config.h"

namespace ingero::app {

/// How `ingero trace` and `ingero agent` run. The configuration file's values, overridden by flags.
struct TraceOptions {
  config::Config config;
  std::optional<ListenAddress> serve;  ///< nullopt: no HTTP server
  bool show_table = true;              ///< live table, or plain lines without a terminal
  bool print_calls = false;
  bool json = false;
  std::optional<std::uint32_t> pid;
  std::string cgroup;
  std::optional<std::chrono::nanoseconds> duration;
  std::vector<std::pair<std::string, std::string>> tallies;  ///< container label, tally file
};

/// Runs until the duration is over or a signal comes. Returns the exit status: 0; 1 when tallies were
/// given and differ. Errors: what keeps it from starting.
Result<int> run_trace(TraceOptions options);

}  // namespace ingero::app
