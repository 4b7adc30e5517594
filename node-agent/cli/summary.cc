// SPDX-License-Identifier: Apache-2.0
#include "cli/summary.h"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <tuple>

#include "base/text.h"
#include "cli/call_name.h"
#include "cli/text_table.h"
#include "model/histogram.h"

namespace ingero::cli {
namespace {

struct SummaryKey {
  std::string container;
  std::string_view operation;
  std::string_view direction;
  auto operator<=>(const SummaryKey&) const = default;
};

using SummaryTotals = std::map<SummaryKey, model::CallTotals>;

/// Label of a cgroup, asked once per cgroup: the lookup may be slow.
class Labels {
 public:
  explicit Labels(const ContainerLabel& container_of) : container_of_(container_of) {}
  const std::string& of(model::CgroupId cgroup) {
    const auto [entry, is_new] = labels_.try_emplace(cgroup);
    if (is_new && container_of_) entry->second = container_of_(cgroup);
    return entry->second;
  }

 private:
  const ContainerLabel& container_of_;
  std::map<model::CgroupId, std::string> labels_;
};

SummaryTotals totals_by_operation(const model::Snapshot& snapshot,
                                  const ContainerLabel& container_of) {
  Labels labels(container_of);
  SummaryTotals totals;
  for (const model::CallSeries& series : snapshot.calls) {
    const CallName name = call_name(series);
    totals[SummaryKey{labels.of(series.cgroup), name.operation, name.direction}].add(series.totals);
  }
  return totals;
}

std::string operation_text(std::string_view operation, std::string_view direction) {
  std::string text = escape_terminal(operation);
  if (!direction.empty()) text += " " + escape_terminal(direction);
  return text;
}

std::string duration_text(double ns) {
  return std::isnan(ns) ? "-" : format_duration_ns(static_cast<std::uint64_t>(ns));
}

/// Of the calls whose return was seen; NaN when there are none.
double mean_ns(const model::CallTotals& totals) {
  const std::uint64_t returned =
      totals.calls > totals.unfinished ? totals.calls - totals.unfinished : 0;
  if (returned == 0) return std::nan("");
  return static_cast<double>(totals.duration_ns) / static_cast<double>(returned);
}

void add_row(TextTable& table, const std::string& container, const std::string& operation,
             const model::CallTotals& totals, Style style) {
  const auto quantile = [&](double q) { return model::duration_quantile_ns(totals.durations, q); };
  table.add_row({{container, style},
                 {operation, style},
                 {format_count(totals.calls), style},
                 {format_count(totals.errors), totals.errors == 0 ? style : Style::kRed},
                 {totals.bytes == 0 ? "-" : format_bytes(static_cast<double>(totals.bytes)), style},
                 {duration_text(mean_ns(totals)), style},
                 {duration_text(quantile(0.5)), style},
                 {duration_text(quantile(0.99)), style}});
}

std::string lost_lines(const std::map<std::string, std::uint64_t>& lost, bool colour) {
  std::uint64_t total = 0;
  for (const auto& [reason, count] : lost) total += count;
  if (total == 0) return styled("lost: 0", Style::kGreen, colour) + "\n";
  std::string text = styled("lost: " + format_count(total), Style::kRed, colour) + "\n";
  for (const auto& [reason, count] : lost) {
    if (count != 0) text += fmt::format("  {}: {}\n", escape_terminal(reason), format_count(count));
  }
  return text;
}

/// "=" or the signed distance of the agent's number.
std::string difference(std::uint64_t expected, std::uint64_t counted) {
  if (expected == counted) return "=";
  if (counted > expected) return "+" + format_count(counted - expected);
  return "-" + format_count(expected - counted);
}

std::string verdict_text(const ComparedLine& line) {
  if (line.equal()) return "=";
  std::string text;
  const auto append = [&](std::string_view name, std::uint64_t expected, std::uint64_t counted) {
    if (expected == counted) return;
    if (!text.empty()) text += ", ";
    text += fmt::format("{} {}", name, difference(expected, counted));
  };
  append("calls", line.expected.calls, line.counted.calls);
  append("errors", line.expected.errors, line.counted.errors);
  append("bytes", line.expected.bytes, line.counted.bytes);
  return text;
}

}  // namespace

std::string render_summary(const model::Snapshot& snapshot, const ContainerLabel& container_of,
                           const SummaryOptions& options) {
  TextTable table({{"CONTAINER", Align::kLeft, 0, 0, 1},
                   {"OPERATION", Align::kLeft, 0, 13, 0},
                   {"CALLS", Align::kRight, 0, 0, 0},
                   {"ERRORS", Align::kRight, 0, 0, 0},
                   {"BYTES", Align::kRight, 0, 0, 2},
                   {"MEAN", Align::kRight, 0, 0, 4},
                   {"P50", Align::kRight, 0, 0, 5},
                   {"P99", Align::kRight, 0, 0, 3}});
  const SummaryTotals totals = totals_by_operation(snapshot, container_of);
  model::CallTotals all;
  for (const auto& [key, sum] : totals) {
    all.add(sum);
    add_row(table, short_container(escape_terminal(key.container), kContainerWidth),
            operation_text(key.operation, key.direction), sum, Style::kPlain);
  }
  if (totals.empty()) return "no calls\n" + lost_lines(snapshot.events_lost, options.colour);
  // Durations of different operations have no common mean.
  table.add_row({{"total", Style::kBold},
                 {fmt::format("{} operations", totals.size()), Style::kBold},
                 {format_count(all.calls), Style::kBold},
                 {format_count(all.errors), all.errors == 0 ? Style::kBold : Style::kRed},
                 {format_bytes(static_cast<double>(all.bytes)), Style::kBold}});
  return join_lines(table.render(options.width, options.colour)) +
         lost_lines(snapshot.events_lost, options.colour);
}

std::vector<TallyLine> tally_of(const model::Snapshot& snapshot,
                                const ContainerLabel& container_of) {
  std::vector<TallyLine> lines;
  for (const auto& [key, sum] : totals_by_operation(snapshot, container_of)) {
    lines.push_back(TallyLine{key.container, std::string(key.operation), std::string(key.direction),
                              sum.calls, sum.errors, sum.bytes});
  }
  return lines;
}

bool ComparedLine::equal() const {
  return expected.calls == counted.calls && expected.errors == counted.errors &&
         expected.bytes == counted.bytes;
}

bool Comparison::equal() const {
  for (const ComparedLine& line : lines) {
    if (!line.equal()) return false;
  }
  return true;
}

Comparison compare_tallies(const std::vector<TallyLine>& expected,
                           const std::vector<TallyLine>& counted) {
  std::map<std::tuple<std::string, std::string, std::string>, ComparedLine> merged;
  const auto add = [&](const TallyLine& line, TallyLine ComparedLine::*side) {
    const std::string operation(operation_of_symbol(line.operation));
    ComparedLine& target = merged[{line.container, operation, line.direction}];
    for (TallyLine* half : {&target.expected, &target.counted}) {
      half->container = line.container;
      half->operation = operation;
      half->direction = line.direction;
    }
    (target.*side).calls += line.calls;
    (target.*side).errors += line.errors;
    (target.*side).bytes += line.bytes;
  };
  for (const TallyLine& line : expected) add(line, &ComparedLine::expected);
  for (const TallyLine& line : counted) add(line, &ComparedLine::counted);
  Comparison comparison;
  for (auto& [key, line] : merged) comparison.lines.push_back(std::move(line));
  return comparison;
}

std::string render_comparison(const Comparison& comparison, const SummaryOptions& options) {
  TextTable table({{"CONTAINER", Align::kLeft, 0, 0, 1},
                   {"OPERATION", Align::kLeft, 0, 13, 0},
                   {"CALLS MADE", Align::kRight, 0, 0, 0},
                   {"COUNTED", Align::kRight, 0, 0, 0},
                   {"ERRORS MADE", Align::kRight, 0, 0, 2},
                   {"COUNTED", Align::kRight, 0, 0, 2},
                   {"BYTES MADE", Align::kRight, 0, 0, 3},
                   {"COUNTED", Align::kRight, 0, 0, 3},
                   {"VERDICT", Align::kLeft, 0, 0, 0}});
  std::size_t different = 0;
  for (const ComparedLine& line : comparison.lines) {
    if (!line.equal()) ++different;
    table.add_row({{short_container(escape_terminal(line.expected.container), kContainerWidth)},
                   {operation_text(line.expected.operation, line.expected.direction)},
                   {format_count(line.expected.calls)},
                   {format_count(line.counted.calls)},
                   {format_count(line.expected.errors)},
                   {format_count(line.counted.errors)},
                   {format_count(line.expected.bytes)},
                   {format_count(line.counted.bytes)},
                   {verdict_text(line), line.equal() ? Style::kGreen : Style::kRed}});
  }
  const std::string verdict =
      different == 0 ? fmt::format("equal: {} lines", comparison.lines.size())
                     : fmt::format("different: {} of {} lines", different, comparison.lines.size());
  return join_lines(table.render(options.width, options.colour)) +
         styled(verdict, different == 0 ? Style::kGreen : Style::kRed, options.colour) + "\n";
}

}  // namespace ingero::cli
