// SPDX-License-Identifier: Apache-2.0
#include "cli/check_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "cli/text_table.h"

namespace ingero::cli {
namespace {

constexpr std::size_t kNameWidth = 20;
constexpr std::size_t kVerdictWidth = 10;
constexpr std::size_t kNarrowest = 20;  // columns of text that a hint gets at least

Style style_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk: return Style::kGreen;
    case Verdict::kDegraded: return Style::kYellow;
    case Verdict::kBlocked: return Style::kRed;
  }
  return Style::kRed;
}

/// Splits at blanks, so that no piece is longer than `width` unless one word is.
std::vector<std::string> wrap(std::string_view text, std::size_t width) {
  std::vector<std::string> lines;
  while (width != 0 && display_width(text) > width) {
    std::size_t cut = text.rfind(' ', width);
    if (cut == std::string_view::npos || cut == 0) cut = text.find(' ');
    if (cut == std::string_view::npos) break;
    lines.emplace_back(text.substr(0, cut));
    text.remove_prefix(cut + 1);
  }
  lines.emplace_back(text);
  return lines;
}

void append_line(std::vector<std::string>& out, const CheckLine& line, std::size_t width,
                 bool colour) {
  constexpr std::size_t indent = kVerdictWidth + kNameWidth;
  const std::size_t room = width == 0 ? 0 : std::max(width, indent + kNarrowest) - indent;
  const std::string verdict = fmt::format("{:<{}}", to_string(line.verdict), kVerdictWidth);
  std::string start = styled(verdict, style_of(line.verdict), colour) +
                      fmt::format("{:<{}}", line.name, kNameWidth);
  for (const std::string& piece : wrap(escape_terminal(line.value), room)) {
    out.push_back(start + piece);
    start.assign(indent, ' ');
  }
  if (line.hint.empty()) return;
  for (const std::string& piece : wrap(escape_terminal(line.hint), room)) {
    out.push_back(std::string(indent, ' ') + styled(piece, Style::kDim, colour));
  }
}

std::string_view verdict_sentence(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk: return "ok: the agent works here";
    case Verdict::kDegraded: return "degraded: the agent works here, with what is missing above";
    case Verdict::kBlocked: return "blocked: the agent cannot work here";
  }
  return "";
}

}  // namespace

std::string render_check(const CheckReport& report, std::size_t width, bool colour) {
  std::vector<std::string> lines;
  for (const CheckLine& line : report.lines) append_line(lines, line, width, colour);
  lines.emplace_back();
  const Verdict verdict = report.verdict();
  lines.push_back(
      StyledLine().add(verdict_sentence(verdict), style_of(verdict)).render(width, colour));
  return join_lines(lines);
}

std::string check_json(const CheckReport& report) {
  nlohmann::ordered_json lines = nlohmann::ordered_json::array();
  for (const CheckLine& line : report.lines) {
    lines.push_back({{"name", line.name},
                     {"value", line.value},
                     {"verdict", to_string(line.verdict)},
                     {"hint", line.hint}});
  }
  const nlohmann::ordered_json document{{"verdict", to_string(report.verdict())},
                                        {"exit_status", report.exit_status()},
                                        {"lines", std::move(lines)}};
  // replace: a process may name itself in bytes that are not UTF-8, and dump() would throw
  return document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace ingero::cli
