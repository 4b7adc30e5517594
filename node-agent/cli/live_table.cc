// SPDX-License-Identifier: Apache-2.0
#include "cli/live_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "base/text.h"
#include "cli/text_table.h"

namespace ingero::cli {
namespace {

using model::Snapshot;

constexpr std::string_view kWaiting = "waiting: no process maps libnccl, libcudart or libcuda yet";
constexpr std::string_view kNoCalls = "attached, no calls yet";
constexpr std::string_view kNone = "-";
constexpr std::size_t kRefusedLines = 2;  // libraries that are named although they are not traced

std::uint64_t sum(const std::map<std::string, std::uint64_t>& counts) {
  std::uint64_t total = 0;
  for (const auto& [reason, count] : counts) total += count;
  return total;
}

std::string plural(std::uint64_t count, std::string_view one, std::string_view many) {
  return fmt::format("{} {}", format_count(count), count == 1 ? one : many);
}

/// "12 (call_ring_full 10, process_folded 2)"
std::string lost_text(const std::map<std::string, std::uint64_t>& lost) {
  std::string text = format_count(sum(lost));
  const char* separator = " (";
  for (const auto& [reason, count] : lost) {
    if (count == 0) continue;
    text += fmt::format("{}{} {}", separator, escape_terminal(reason), format_count(count));
    separator = ", ";
  }
  return sum(lost) == 0 ? text : text + ")";
}

/// A rate without its "/s", which the title says.
std::string per_second(const std::optional<double>& rate, std::string (*format)(double)) {
  if (!rate) return std::string(kNone);
  if (*rate == 0) return "0";
  std::string text = format(*rate);
  if (text.ends_with("/s")) text.resize(text.size() - 2);
  return text;
}

std::string totals_line(const LiveView& view, const std::vector<LiveRow>& rows,
                        const FrameOptions& options) {
  const Snapshot& now = *view.current.snapshot;
  std::size_t probes = 0;
  for (const auto& library : now.libraries) probes += library.probes.size();
  std::optional<double> rate;  // of all rows; they all have one or none has
  for (const LiveRow& row : rows) {
    if (row.calls_per_s) rate = rate.value_or(0) + *row.calls_per_s;
  }
  const bool lossless = sum(now.events_lost) == 0;
  StyledLine line;
  line.add("ingero", Style::kBold)
      .add("  " + plural(now.processes.size(), "process", "processes"))
      .add("  " + plural(now.libraries.size(), "library", "libraries"))
      .add(
          fmt::format("  {} ({})", plural(probes, "probe", "probes"), model::to_string(now.method)))
      .add(fmt::format("  {} calls/s", per_second(rate, format_rate)))
      .add("  ")
      .add("lost " + lost_text(now.events_lost), lossless ? Style::kGreen : Style::kRed)
      .add("  up " + format_duration_ns(view.uptime_ns), Style::kDim);
  return line.render(options.width, options.colour);
}

/// Libraries that were found and are not traced, with the reason: the table cannot show what they
/// miss.
std::vector<std::string> refused_lines(const Snapshot& now, const FrameOptions& options) {
  std::vector<std::string> lines;
  std::size_t refused = 0;
  for (const auto& library : now.libraries) {
    if (library.reason.empty() || ++refused > kRefusedLines) continue;
    lines.push_back(StyledLine()
                        .add(fmt::format("not traced: {}: {}", escape_terminal(library.path),
                                         escape_terminal(library.reason)),
                             Style::kYellow)
                        .render(options.width, options.colour));
  }
  if (refused > kRefusedLines) {
    lines.push_back(
        StyledLine()
            .add(fmt::format("not traced: {} more, see /debug/state", refused - kRefusedLines),
                 Style::kYellow)
            .render(options.width, options.colour));
  }
  return lines;
}

std::string duration(const std::optional<double>& ns) {
  return ns ? format_duration_ns(static_cast<std::uint64_t>(*ns)) : std::string(kNone);
}

/// The pid first: a narrow column cuts the name, not the identity.
std::string process_name(const LiveRow& row) {
  if (row.process.tgid == 0) return "(ended)";
  const std::string comm = row.comm.empty() ? "?" : escape_terminal(row.comm);
  return fmt::format("{} {}", row.process.tgid, comm);
}

std::string container_name(const LiveRow& row) {
  return short_container(escape_terminal(row.container), kContainerWidth);
}

/// Calls without a size (GroupEnd, Synchronize) have no byte rate.
std::string byte_rate(const LiveRow& row) {
  return row.bytes == 0 ? std::string(kNone) : per_second(row.bytes_per_s, format_byte_rate);
}

TextTable empty_table() {
  return TextTable({{"CONTAINER", Align::kLeft, kContainerWidth, 8, 3},
                    {"PROCESS", Align::kLeft, 16, 10, 0},
                    {"LIBRARY", Align::kLeft, 12, 0, 4},
                    {"OPERATION", Align::kLeft, 19, 19, 0},
                    {"CALLS/S", Align::kRight, 8, 0, 0},
                    {"BYTES/S", Align::kRight, 8, 0, 1},
                    {"P50", Align::kRight, 7, 0, 5},
                    {"P99", Align::kRight, 7, 0, 2},
                    {"CALLS", Align::kRight, 11, 0, 6},
                    {"ERRORS", Align::kRight, 6, 0, 0}});
}

void add_row(TextTable& table, const LiveRow& row, const LiveRow* above) {
  const bool same_container = above != nullptr && above->cgroup == row.cgroup;
  const bool same_process = same_container && above->process == row.process;
  const Style quiet = row.interval_calls == 0 && row.calls_per_s ? Style::kDim : Style::kPlain;
  table.add_row({{same_container ? "" : container_name(row), quiet},
                 {same_process ? "" : process_name(row), quiet},
                 {escape_terminal(row.library), quiet},
                 {row.operation, quiet},
                 {per_second(row.calls_per_s, format_rate), quiet},
                 {byte_rate(row), quiet},
                 {duration(row.p50_ns), quiet},
                 {duration(row.p99_ns), quiet},
                 {format_count(row.calls), quiet},
                 {format_count(row.errors), row.errors == 0 ? quiet : Style::kRed}});
}

/// The table's lines, as many as `room` allows (0: all); what is left out is counted in the last
/// one.
std::vector<std::string> table_lines(const std::vector<LiveRow>& rows, const FrameOptions& options,
                                     std::size_t room) {
  constexpr std::size_t title = 1;
  std::size_t shown = rows.size();
  if (room != 0 && title + rows.size() > room) shown = room > title + 1 ? room - title - 1 : 0;
  TextTable table = empty_table();
  for (std::size_t i = 0; i < shown; ++i) add_row(table, rows[i], i == 0 ? nullptr : &rows[i - 1]);
  std::vector<std::string> lines = table.render(options.width, options.colour);
  if (shown < rows.size()) {
    lines.push_back(StyledLine()
                        .add(fmt::format("… and {} more {}", rows.size() - shown,
                                         rows.size() - shown == 1 ? "row" : "rows"),
                             Style::kDim)
                        .render(options.width, options.colour));
  }
  return lines;
}

std::string utc_second(std::int64_t unix_ns) {
  const std::int64_t second = std::max<std::int64_t>(unix_ns, 0) / 1'000'000'000 % 86'400;
  return fmt::format("{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60);
}

std::string plain_row(const LiveRow& row) {
  const std::string bytes = row.bytes == 0 ? "-" : format_byte_rate(row.bytes_per_s.value_or(0));
  return fmt::format("{} {} {} {} {} {} p50 {} p99 {} calls {} errors {}", container_name(row),
                     process_name(row), escape_terminal(row.library), row.operation,
                     format_rate(row.calls_per_s.value_or(0)), bytes, duration(row.p50_ns),
                     duration(row.p99_ns), row.calls, row.errors);
}

}  // namespace

std::string render_frame(const LiveView& view, const FrameOptions& options) {
  if (view.current.snapshot == nullptr) return "starting";
  const Snapshot& now = *view.current.snapshot;
  const std::vector<LiveRow> rows = live_rows(view.previous, view.current, view.container_of);
  std::vector<std::string> lines{totals_line(view, rows, options)};
  for (std::string& line : refused_lines(now, options)) lines.push_back(std::move(line));
  if (rows.empty()) {
    lines.emplace_back();
    lines.push_back(truncate(now.libraries.empty() ? kWaiting : kNoCalls,
                             options.width == 0 ? kWaiting.size() : options.width));
  } else {
    // 1: room is used up, so that the table shows its title and what is missing at least
    const std::size_t left = options.height > lines.size() ? options.height - lines.size() : 1;
    for (std::string& line : table_lines(rows, options, options.height == 0 ? 0 : left)) {
      lines.push_back(std::move(line));
    }
  }
  if (options.height != 0 && lines.size() > options.height) lines.resize(options.height);
  std::string text = join_lines(lines);
  text.pop_back();  // the cursor stays on the last line: a full screen must not scroll
  return text;
}

std::string render_plain(const LiveView& view) {
  if (view.current.snapshot == nullptr) return "";
  const Snapshot& now = *view.current.snapshot;
  const std::string time = utc_second(now.unix_ns);
  const std::vector<LiveRow> rows = live_rows(view.previous, view.current, view.container_of);
  std::string text;
  for (const LiveRow& row : rows) {
    if (row.interval_calls != 0) text += fmt::format("{} {}\n", time, plain_row(row));
  }
  const bool has_previous = view.previous.snapshot != nullptr;
  const std::uint64_t lost_before = has_previous ? sum(view.previous.snapshot->events_lost) : 0;
  if (sum(now.events_lost) > lost_before) {
    text += fmt::format("{} lost {} since the start\n", time, lost_text(now.events_lost));
  }
  if (rows.empty() && now.libraries.empty()) text += fmt::format("{} {}\n", time, kWaiting);
  return text;
}

}  // namespace ingero::cli
