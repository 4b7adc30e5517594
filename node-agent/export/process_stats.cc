// SPDX-License-Identifier: Apache-2.0
#include "export/process_stats.h"

#include <sys/resource.h>
#include <unistd.h>

#include <charconv>
#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "base/text_file.h"

namespace ingero::exporting {
namespace {

constexpr std::size_t kMaxStatBytes = 64 * 1024;
constexpr std::size_t kMaxNodeStatBytes =
    4 * 1024 * 1024;  // a line per CPU and one of all interrupts
// Fields of /proc/self/stat behind the name, which ends with the last bracket: proc(5) numbers
// less 3.
constexpr std::size_t kThreads = 17;
constexpr std::size_t kStartTime = 19;
constexpr std::size_t kVirtualSize = 20;
constexpr std::size_t kResidentPages = 21;

std::optional<double> to_number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{}) return std::nullopt;
  return static_cast<double>(value);
}

std::vector<std::string_view> fields_behind_name(std::string_view stat) {
  std::vector<std::string_view> fields;
  const std::size_t bracket = stat.rfind(')');
  if (bracket == std::string_view::npos) return fields;
  stat.remove_prefix(bracket + 1);
  while (true) {
    const std::size_t begin = stat.find_first_not_of(" \n");
    if (begin == std::string_view::npos) return fields;
    stat.remove_prefix(begin);
    const std::size_t end = stat.find_first_of(" \n");
    fields.push_back(stat.substr(0, end));
    if (end == std::string_view::npos) return fields;
    stat.remove_prefix(end);
  }
}

std::optional<double> boot_time(const std::string& proc) {
  const auto text = read_text_file(proc + "/stat", kMaxNodeStatBytes, "read boot time");
  if (!text) return std::nullopt;
  constexpr std::string_view key = "\nbtime ";
  const std::size_t at = text->find(key);
  if (at == std::string::npos) return std::nullopt;
  return to_number(std::string_view(*text).substr(at + key.size()));
}

void read_stat(const std::string& proc, ProcessStats& stats) {
  const auto text = read_text_file(proc + "/self/stat", kMaxStatBytes, "read process statistics");
  if (!text) return;
  const auto fields = fields_behind_name(*text);
  if (fields.size() <= kResidentPages) return;
  stats.threads = to_number(fields[kThreads]);
  stats.virtual_bytes = to_number(fields[kVirtualSize]);
  if (const auto pages = to_number(fields[kResidentPages])) {
    stats.resident_bytes = *pages * static_cast<double>(sysconf(_SC_PAGESIZE));
  }
  const auto ticks = to_number(fields[kStartTime]);
  const auto boot = boot_time(proc);
  if (ticks && boot) {
    stats.start_time_unix_seconds = *boot + *ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
  }
}

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

std::optional<double> count_fds(const std::string& proc) {
  std::error_code error;
  std::filesystem::directory_iterator entries(proc + "/self/fd", error);
  double count = 0;
  for (; !error && entries != std::filesystem::directory_iterator(); entries.increment(error))
    ++count;
  if (error) return std::nullopt;
  return count - 1;  // the one that reads the directory
}

}  // namespace

ProcessStats read_process_stats(const std::string& proc) {
  ProcessStats stats;
  read_stat(proc, stats);
  stats.open_fds = count_fds(proc);
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) == 0) {
    stats.cpu_seconds = seconds(usage.ru_utime) + seconds(usage.ru_stime);
  }
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    stats.max_fds = static_cast<double>(limit.rlim_cur);
  }
  return stats;
}

}  // namespace ingero::exporting
