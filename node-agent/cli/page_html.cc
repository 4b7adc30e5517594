// SPDX-License-Identifier: Apache-2.0
// The page as HTML: one file, no script, light or dark as the reader's system is.
#include <fmt/format.h>

#include <array>
#include <string_view>

#include "base/text.h"
#include "cli/page_output.h"
#include "cli/plot_scale.h"

namespace ingero::cli {
namespace {

using model::Page;
using model::PagePlot;
using model::PageSection;
using model::PageTable;

// What is wider than the window scrolls in a box of its own, whose shadows at the sides show that there is
// more.
constexpr std::string_view kStyle =
    ":root{--text:#1a1f26;--page:#fff;--line:#e3e7ec;--faint:#57606a;color-scheme:light dark}"
    "@media(prefers-color-scheme:dark){:root{--text:#dfe5ec;--page:#14181d;--line:#2c333b;"
    "--faint:#9aa5b1}}"
    "body{font:15px/1.5 system-ui,sans-serif;max-width:1200px;margin:2em auto;padding:0 1em;"
    "color:var(--text);background:var(--page)}"
    "h1{font-size:1.5em}h2{font-size:1.15em;margin-top:2em}h3{font-size:1em;margin-top:1.5em}"
    "p{margin:.4em 0}"
    "p{overflow-wrap:anywhere}"
    ".wide{overflow-x:auto;background:"
    "linear-gradient(to right,var(--page) 12px,#0000) left/40px 100% no-repeat local,"
    "linear-gradient(to left,var(--page) 12px,#0000) right/40px 100% no-repeat local,"
    "linear-gradient(to right,#8888,#0000) left/12px 100% no-repeat scroll,"
    "linear-gradient(to left,#8888,#0000) right/12px 100% no-repeat scroll}"
    "table{border-collapse:collapse}"
    "th,td{padding:.25em .9em .25em 0;text-align:left;white-space:nowrap;"
    "border-bottom:1px solid var(--line)}"
    "th.r,td.r{text-align:right;font-variant-numeric:tabular-nums}"
    "svg{display:block;width:100%;min-width:900px;height:auto}"
    "text{font:12px system-ui,sans-serif;fill:var(--faint)}"
    ".key span{display:inline-block;margin-right:1.2em;white-space:nowrap}"
    ".key i{display:inline-block;width:.7em;height:.7em;border-radius:50%;margin-right:.4em}";
constexpr std::array<std::string_view, 8> kColours = {"#2f81d9", "#d1495b", "#2a9d5c", "#b5651d",
                                                      "#8a63c9", "#159aab", "#c78500", "#7c8796"};
constexpr double kWidth = 1000, kLeft = 130, kRight = 10, kTop = 10, kBottom = 24;
constexpr double kDecade = 52, kRow = 18;  // heights: of a power of ten, of a row of counts

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
  std::string text = "<div class=wide><table><thead><tr>";
  for (const PageTable::Column& column : table.columns)
    text += fmt::format("<th{}>{}</th>", column.right ? " class=r" : "", html(column.title));
  text += "</tr></thead><tbody>\n";
  for (const auto& row : table.rows) {
    text += "<tr>";
    for (std::size_t i = 0; i < row.size() && i < table.columns.size(); ++i)
      text += fmt::format("<td{}>{}</td>", table.columns[i].right ? " class=r" : "", html(row[i]));
    text += "</tr>\n";
  }
  return text + "</tbody></table></div>\n";
}

double x_of(std::size_t i, std::size_t count) {
  const double step =
      (kWidth - kLeft - kRight) / static_cast<double>(std::max<std::size_t>(count, 1));
  return kLeft + (static_cast<double>(i) + 0.5) * step;
}

/// When the middle of a part of the time is, in seconds since the begin.
double seconds_at(const PagePlot& plot, std::size_t i, std::size_t count) {
  return plot.seconds * (static_cast<double>(i) + 0.5) / static_cast<double>(count);
}

std::string svg_points(const PagePlot& plot, std::size_t index, const PlotScale& scale,
                       double height) {
  const PagePlot::Series& series = plot.series[index];
  std::string text;
  for (std::size_t i = 0; i < series.values.size(); ++i) {
    if (series.values[i] < 0) continue;
    text += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\" fill-opacity=\".7\">"
        "<title>{}: {} at about {:.3g} s</title></circle>",
        x_of(i, series.values.size()), kTop + (1 - scale.share(series.values[i])) * height,
        kColours[index % kColours.size()], html(series.name),
        html(value_text(plot, series.values[i])), seconds_at(plot, i, series.values.size()));
  }
  return text;
}

/// A row of marks: the moments of one kind, so that they stand below the calls of their time.
std::string svg_counts(const PagePlot& plot, const PagePlot::Counts& counts, double y) {
  std::string text = fmt::format("<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>",
                                 kLeft - 8, y + 10, html(counts.name));
  for (std::size_t i = 0; i < counts.values.size(); ++i) {
    if (counts.values[i] == 0) continue;
    text += fmt::format(
        "<rect class=mark x=\"{:.1f}\" y=\"{:.1f}\" width=\"4\" height=\"12\" fill=\"#d1495b\">"
        "<title>{}: {} at about {:.3g} s</title></rect>",
        x_of(i, counts.values.size()) - 2, y, html(counts.name), counts.values[i],
        seconds_at(plot, i, counts.values.size()));
  }
  return text;
}

std::string svg_axes(const PagePlot& plot, const PlotScale& scale, double height) {
  std::string text;
  for (int power = scale.bottom; power <= scale.top; ++power) {
    const double y = kTop + (1 - scale.share(PlotScale::value_of(power))) * height;
    text += fmt::format(
        "<line x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#8884\"/>"
        "<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>",
        kLeft, kWidth - kRight, y, y, kLeft - 8, y + 4,
        html(value_text(plot, PlotScale::value_of(power))));
  }
  const double below = kTop + height + 18;
  return text + fmt::format(
                    "<text x=\"{}\" y=\"{:.1f}\">0 s</text>"
                    "<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{:.3g} s</text>",
                    kLeft, below, kWidth - kRight, below, plot.seconds);
}

std::string svg(const PagePlot& plot) {
  const PlotScale scale(plot);
  if (!scale.any) return "";
  const double height = kDecade * (scale.top - scale.bottom);
  const double total = kTop + height + kBottom + kRow * static_cast<double>(plot.counts.size());
  std::string text = fmt::format(
      "<h3>{0}</h3>\n<div class=wide><svg viewBox=\"0 0 {1} {2}\" role=\"img\" aria-label=\"{0}\">",
      html(plot.title), kWidth, total);
  text += svg_axes(plot, scale, height);
  for (std::size_t i = 0; i < plot.series.size(); ++i) text += svg_points(plot, i, scale, height);
  for (std::size_t i = 0; i < plot.counts.size(); ++i)
    text +=
        svg_counts(plot, plot.counts[i], kTop + height + kBottom + kRow * static_cast<double>(i));
  text += "</svg></div>\n<p class=key>";
  for (std::size_t i = 0; i < plot.series.size(); ++i)
    text += fmt::format("<span><i style=\"background:{}\"></i>{}</span>\n",
                        kColours[i % kColours.size()], html(plot.series[i].name));
  return text + "</p>\n";
}

}  // namespace

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
