// SPDX-License-Identifier: Apache-2.0
#include "app/process_status.h"

#include <fmt/format.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

namespace ingero::app {

bool is_alive(const model::ProcessKey& process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process.tgid));
  std::stringstream text;
  text << file.rdbuf();
  const std::string stat = text.str();
  const auto after_name = stat.rfind(')');  // the name may hold anything, parentheses too
  if (after_name == std::string::npos) return false;
  std::istringstream fields(stat.substr(after_name + 1));
  std::string field;
  constexpr int kStartTime = 20;  // field 22 of the line, counted from the one behind the name
  for (int i = 0; i < kStartTime; ++i) fields >> field;
  const auto ticks = static_cast<std::uint64_t>(::sysconf(_SC_CLK_TCK));
  std::uint64_t start = 0;
  if (!(std::istringstream(field) >> start)) return false;
  return start == process.start_ns / (1000000000ULL / ticks);
}

}  // namespace ingero::app
