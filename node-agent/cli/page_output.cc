// SPDX-License-Identifier: Apache-2.0
#include "cli/page_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/text.h"
#include "cli/text_table.h"

namespace ingero::cli {
namespace {

using model::Page;
using model::PagePlot;
using model::PageSection;
using model::PageTable;

double largest(const PagePlot& plot) {
  double top = 0;
  for (const PagePlot::Series& series : plot.series)
    for (const double value : series.values) top = std::max(top, value);
  return top;
}

// ---- terminal --------------------------------------------------------------------------------------

constexpr std::size_t kSparkWidth = 60;
constexpr std::array<std::string_view, 8> kSparks = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};

std::string sparkline(const std::vector<double>& values, double top) {
  std::string text;
  for (std::size_t i = 0; i < kSparkWidth && !values.empty(); ++i) {
    const std::size_t from = i * values.size() / kSparkWidth;
    const std::size_t to = std::max(from + 1, (i + 1) * values.size() / kSparkWidth);
    double highest = -1;
    for (std::size_t at = from; at < std::min(to, values.size()); ++at)
      highest = std::max(highest, values[at]);
    if (highest < 0 || top <= 0) text += ' ';
    else
      text += kSparks[std::min<std::size_t>(
          static_cast<std::size_t>(highest / top * static_cast<double>(kSparks.size())),
          kSparks.size() - 1)];
  }
  return text;
}

void add_table(std::string& text, const PageTable& table, std::size_t width, bool colour) {
  if (table.rows.empty()) return;
  std::vector<Column> columns;
  for (const PageTable::Column& column : table.columns)
    columns.push_back(
        {column.title, column.right ? Align::kRight : Align::kLeft, 0, column.right ? 0U : 12U, 0});
  TextTable lines(std::move(columns));
  for (const auto& row : table.rows) {
    std::vector<Cell> cells;
    for (const std::string& cell : row) cells.push_back({escape_terminal(cell), Style::kPlain});
    lines.add_row(std::move(cells));
  }
  text += join_lines(lines.render(width, colour));
}

// ---- HTML ------------------------------------------------------------------------------------------

constexpr std::string_view kStyle =
    "body{font:15px/1.5 system-ui,sans-serif;max-width:1100px;margin:2em auto;padding:0 1em;"
    "color:#1a1f26;background:#fff}h1{font-size:1.5em}h2{font-size:1.15em;margin-top:2em}"
    "table{border-collapse:collapse;display:block;overflow-x:auto}"
    "th,td{padding:.25em .9em .25em 0;text-align:left;white-space:nowrap;"
    "border-bottom:1px solid #e3e7ec}td.r,th.r{text-align:right;font-variant-numeric:tabular-nums}"
    "svg{max-width:100%;height:auto}text{font:12px system-ui,sans-serif;fill:#57606a}"
    "@media(prefers-color-scheme:dark){body{background:#14181d;color:#dfe5ec}"
    "th,td{border-color:#2c333b}text{fill:#9aa5b1}}";
constexpr std::array<std::string_view, 8> kColours = {"#0b6bcb", "#d1495b", "#2a9d5c", "#b5651d",
                                                      "#7b4bb7", "#12808f", "#c78500", "#6b7280"};
constexpr double kWidth = 1000, kHeight = 220, kLeft = 70, kBottom = 24, kTop = 10;

std::string html(std::string_view text) {
  std::string result;
  for (const char c : escape_terminal(text)) {
    switch (c) {
      case '&': result += "&amp;"; break;
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '"': result += "&quot;"; break;
      default: result += c;
    }
  }
  return result;
}

std::string html_table(const PageTable& table) {
  if (table.rows.empty()) return "";
  std::string text = "<table><thead><tr>";
  for (const PageTable::Column& column : table.columns)
    text += fmt::format("<th{}>{}</th>", column.right ? " class=r" : "", html(column.title));
  text += "</tr></thead><tbody>\n";
  for (const auto& row : table.rows) {
    text += "<tr>";
    for (std::size_t i = 0; i < row.size() && i < table.columns.size(); ++i)
      text += fmt::format("<td{}>{}</td>", table.columns[i].right ? " class=r" : "", html(row[i]));
    text += "</tr>\n";
  }
  return text + "</tbody></table>\n";
}

std::string svg_points(const PagePlot::Series& series, std::size_t index, double top) {
  const std::string_view colour = kColours[index % kColours.size()];
  const auto count = static_cast<double>(std::max<std::size_t>(series.values.size(), 1));
  const double step = (kWidth - kLeft) / count;
  std::string text;
  for (std::size_t i = 0; i < series.values.size(); ++i) {
    if (series.values[i] < 0) continue;
    const double x = kLeft + (static_cast<double>(i) + 0.5) * step;
    const double height = series.values[i] / top * (kHeight - kBottom - kTop);
    text += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\" "
        "fill-opacity=\".75\"/>",
        x, kHeight - kBottom - height, colour);
  }
  return text;
}

std::string svg(const PagePlot& plot) {
  const double top = largest(plot);
  if (top <= 0) return "";
  const double legend = 18 * static_cast<double>(plot.series.size());
  std::string text = fmt::format(
      "<h3>{}</h3>\n<svg viewBox=\"0 0 {} {}\" width=\"{}\" role=\"img\" aria-label=\"{}\">",
      html(plot.title), kWidth, kHeight + legend, kWidth, html(plot.title));
  for (const double share : {0.0, 0.5, 1.0}) {
    const double y = kHeight - kBottom - share * (kHeight - kBottom - kTop);
    text += fmt::format(
        "<line x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#8884\"/>"
        "<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{:.3g} {}</text>",
        kLeft, kWidth, y, y, kLeft - 8, y + 4, top * share, html(plot.unit));
  }
  text += fmt::format(
      "<text x=\"{}\" y=\"{}\">0 s</text>"
      "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{:.3g} s</text>",
      kLeft, kHeight - 6, kWidth, kHeight - 6, plot.seconds);
  for (std::size_t i = 0; i < plot.series.size(); ++i) {
    text += svg_points(plot.series[i], i, top);
    const double y = kHeight + 18 * static_cast<double>(i) + 10;
    text += fmt::format(
        "<circle cx=\"{}\" cy=\"{}\" r=\"4\" fill=\"{}\"/>"
        "<text x=\"{}\" y=\"{}\">{}</text>",
        kLeft + 4, y - 4, kColours[i % kColours.size()], kLeft + 14, y, html(plot.series[i].name));
  }
  return text + "</svg>\n";
}

}  // namespace

std::string render_page(const Page& page, std::size_t width, bool colour) {
  std::string text = styled(escape_terminal(page.title), Style::kBold, colour) + "\n";
  for (const PageSection& section : page.sections) {
    text += "\n" + styled(escape_terminal(section.title), Style::kBold, colour) + "\n";
    for (const std::string& line : section.lines) text += escape_terminal(line) + "\n";
    add_table(text, section.table, width, colour);
    for (const PagePlot& plot : section.plots) {
      const double top = largest(plot);
      text += fmt::format("{} ({:.3g} s, full height {:.3g} {})\n", escape_terminal(plot.title),
                          plot.seconds, top, plot.unit);
      for (const PagePlot::Series& series : plot.series)
        text +=
            fmt::format("  {}  {}\n", sparkline(series.values, top), escape_terminal(series.name));
    }
  }
  return text;
}

std::string render_page_html(const Page& page) {
  std::string text = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title>\n"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'\">\n<style>{1}</style></head><body>\n<h1>{0}</h1>\n",
      html(page.title), kStyle);
  for (const PageSection& section : page.sections) {
    text += fmt::format("<h2>{}</h2>\n", html(section.title));
    for (const std::string& line : section.lines) text += fmt::format("<p>{}</p>\n", html(line));
    text += html_table(section.table);
    for (const PagePlot& plot : section.plots) text += svg(plot);
  }
  return text + "</body></html>\n";
}

}  // namespace ingero::cli
