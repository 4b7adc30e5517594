// SPDX-License-Identifier: Apache-2.0
#include "cli/page_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/text.h"
#include "cli/plot_scale.h"
#include "cli/text_table.h"

namespace ingero::cli {
namespace {

using model::Page;
using model::PagePlot;
using model::PageSection;
using model::PageTable;

constexpr std::size_t kSparkWidth = 60, kLeastSparkWidth = 20;
constexpr std::size_t kLeastColumn = 12;  // of text: a hash, a time, most of a name
constexpr std::array<std::string_view, 8> kSparks = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};

/// One character for the highest of `shares` (0 to 1; negative: none) in each part of the time.
std::string sparkline(const std::vector<double>& shares, std::size_t width) {
  std::string text;
  for (std::size_t i = 0; i < width && !shares.empty(); ++i) {
    const std::size_t from = i * shares.size() / width;
    const std::size_t to = std::max(from + 1, (i + 1) * shares.size() / width);
    double highest = -1;
    for (std::size_t at = from; at < std::min(to, shares.size()); ++at)
      highest = std::max(highest, shares[at]);
    if (highest < 0) text += ' ';
    else
      text += kSparks[std::min<std::size_t>(
          static_cast<std::size_t>(highest * static_cast<double>(kSparks.size())),
          kSparks.size() - 1)];
  }
  return text;
}

std::vector<double> shares_of(const PagePlot::Series& series, const PlotScale& scale) {
  std::vector<double> shares;
  for (const double value : series.values) shares.push_back(value < 0 ? -1 : scale.share(value));
  return shares;
}

std::vector<double> shares_of(const PagePlot::Counts& counts) {
  std::uint64_t most = 1;
  for (const std::uint64_t value : counts.values) most = std::max(most, value);
  std::vector<double> shares;
  for (const std::uint64_t value : counts.values)
    shares.push_back(value == 0 ? -1 : static_cast<double>(value) / static_cast<double>(most));
  return shares;
}

/// Between words, where the line is longer than the terminal is wide (0: nowhere).
std::string wrapped(std::string_view line, std::size_t width) {
  std::string text;
  std::size_t used = 0;
  while (!line.empty()) {
    const std::size_t end = std::min(line.find(' '), line.size());
    const std::string_view word = line.substr(0, end);
    line.remove_prefix(std::min(end + 1, line.size()));
    const std::size_t size = display_width(word);
    if (used != 0 && width != 0 && used + 1 + size > width) {
      text += '\n';
      used = 0;
    } else if (used != 0) {
      text += ' ';
      ++used;
    }
    text += word;
    used += size;
  }
  return text + "\n";
}

void add_table(std::string& text, const PageTable& table, std::size_t width, bool colour) {
  if (table.rows.empty()) return;
  std::vector<Column> columns;
  for (const PageTable::Column& column : table.columns)
    columns.push_back({column.title, column.right ? Align::kRight : Align::kLeft, 0,
                       column.right || column.whole ? 0U : kLeastColumn, column.drop_order});
  TextTable lines(std::move(columns));
  for (const auto& row : table.rows) {
    std::vector<Cell> cells;
    for (const std::string& cell : row) cells.push_back({escape_terminal(cell), Style::kPlain});
    lines.add_row(std::move(cells));
  }
  text += join_lines(lines.render(width, colour));
}

void add_plot(std::string& text, const PagePlot& plot, std::size_t width) {
  const PlotScale scale(plot);
  if (!scale.any) return;
  std::size_t longest = 0;
  for (const auto& series : plot.series)
    longest = std::max(longest, display_width(escape_terminal(series.name)));
  for (const auto& counts : plot.counts) longest = std::max(longest, display_width(counts.name));
  std::size_t room = kSparkWidth;
  if (width != 0 && width < kSparkWidth + longest + 4)
    room = width > kLeastSparkWidth + longest + 4 ? width - longest - 4 : kLeastSparkWidth;
  text += "\n" + wrapped(fmt::format("{}, {:.3g} s; from {} to {}, each step about {:.2g} times "
                                     "as long",
                                     escape_terminal(plot.title), plot.seconds,
                                     value_text(plot, PlotScale::value_of(scale.bottom)),
                                     value_text(plot, PlotScale::value_of(scale.top)),
                                     std::pow(10.0, (scale.top - scale.bottom) /
                                                        static_cast<double>(kSparks.size()))),
                         width);
  for (const PagePlot::Series& series : plot.series)
    text += fmt::format("  {}  {}\n", sparkline(shares_of(series, scale), room),
                        escape_terminal(series.name));
  for (const PagePlot::Counts& counts : plot.counts)
    text +=
        fmt::format("  {}  {}\n", sparkline(shares_of(counts), room), escape_terminal(counts.name));
}

}  // namespace

std::string render_page(const Page& page, std::size_t width, bool colour) {
  std::string text = styled(escape_terminal(page.title), Style::kBold, colour) + "\n";
  for (const PageSection& section : page.sections) {
    text += "\n" + styled(escape_terminal(section.title), Style::kBold, colour) + "\n";
    for (const std::string& line : section.lines) text += wrapped(escape_terminal(line), width);
    add_table(text, section.table, width, colour);
    for (const PagePlot& plot : section.plots) add_plot(text, plot, width);
  }
  return text;
}

}  // namespace ingero::cli
