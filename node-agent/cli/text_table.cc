// SPDX-License-Identifier: Apache-2.0
#include "cli/text_table.h"

#include <algorithm>

#include "base/text.h"

namespace ingero::cli {
namespace {

constexpr std::size_t kGap = 2;      // blanks between columns
constexpr std::size_t kDropped = 0;  // width of a column that is not shown

std::string_view sequence_of(Style style) {
  switch (style) {
    case Style::kPlain: return "";
    case Style::kBold: return "\x1b[1m";
    case Style::kDim: return "\x1b[2m";
    case Style::kGreen: return "\x1b[32m";
    case Style::kYellow: return "\x1b[33m";
    case Style::kRed: return "\x1b[31m";
  }
  return "";
}

std::size_t total_width(const std::vector<std::size_t>& widths) {
  std::size_t total = 0;
  for (const std::size_t width : widths) total += width == kDropped ? 0 : width + kGap;
  return total == 0 ? 0 : total - kGap;
}

/// Cuts the widest column that may be cut, as far as needed. False: none is left to cut.
bool shrink_widest(const std::vector<Column>& columns, std::vector<std::size_t>& widths,
                   std::size_t excess) {
  std::size_t best = columns.size();
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (columns[i].shrink_to == 0 || widths[i] <= columns[i].shrink_to) continue;
    if (best == columns.size() || widths[i] > widths[best]) best = i;
  }
  if (best == columns.size()) return false;
  const std::size_t spare = widths[best] - columns[best].shrink_to;
  widths[best] -= std::min(spare, excess);
  return true;
}

/// The column to give up next; columns.size() when none may go.
std::size_t next_to_drop(const std::vector<Column>& columns,
                         const std::vector<std::size_t>& widths) {
  std::size_t best = columns.size();
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (columns[i].drop_order == 0 || widths[i] == kDropped) continue;
    if (best == columns.size() || columns[i].drop_order > columns[best].drop_order) best = i;
  }
  return best;
}

}  // namespace

std::string styled(std::string_view text, Style style, bool colour) {
  if (!colour || style == Style::kPlain || text.empty()) return std::string(text);
  return std::string(sequence_of(style)).append(text).append("\x1b[0m");
}

std::size_t display_width(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;  // not a continuation byte
  }));
}

StyledLine& StyledLine::add(std::string_view text, Style style) {
  if (!text.empty()) pieces_.push_back(Cell{std::string(text), style});
  return *this;
}

std::string StyledLine::render(std::size_t width, bool colour) const {
  std::string line;
  std::size_t used = 0;
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    const std::size_t size = display_width(pieces_[i].text);
    const bool more_follows = i + 1 < pieces_.size();
    if (width == 0 || used + size < width || (used + size == width && !more_follows)) {
      line += styled(pieces_[i].text, pieces_[i].style, colour);
      used += size;
      continue;
    }
    std::string cut = truncate(pieces_[i].text, width - used);
    // A piece that just fits, with another behind it: show that something is missing.
    if (size == width - used) cut = truncate(pieces_[i].text + " ", width - used);
    return line + styled(cut, pieces_[i].style, colour);
  }
  return line;
}

void TextTable::add_row(std::vector<Cell> cells) {
  cells.resize(columns_.size());
  rows_.push_back(std::move(cells));
}

std::vector<std::size_t> TextTable::natural_widths() const {
  std::vector<std::size_t> widths;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    std::size_t width = std::max(display_width(columns_[i].title), columns_[i].reserved);
    for (const auto& row : rows_) width = std::max(width, display_width(row[i].text));
    widths.push_back(width);
  }
  return widths;
}

std::vector<std::size_t> TextTable::fitted_widths(std::size_t width) const {
  const std::vector<std::size_t> natural = natural_widths();
  std::vector<std::size_t> widths = natural;
  while (width != 0 && total_width(widths) > width) {
    if (shrink_widest(columns_, widths, total_width(widths) - width)) continue;
    const std::size_t victim = next_to_drop(columns_, widths);
    if (victim == columns_.size()) break;  // the line itself is cut
    // What was cut may grow back into the room that became free.
    for (std::size_t i = 0; i < widths.size(); ++i) {
      if (widths[i] != kDropped) widths[i] = natural[i];
    }
    widths[victim] = kDropped;
  }
  return widths;
}

std::string TextTable::render_line(const std::vector<Cell>& cells,
                                   const std::vector<std::size_t>& widths, std::size_t width,
                                   bool colour) const {
  StyledLine line;
  std::size_t pending = 0;  // blanks that are written only when something follows
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (widths[i] == kDropped) continue;
    const std::string text = truncate(cells[i].text, widths[i]);
    const std::size_t padding = widths[i] - std::min(widths[i], display_width(text));
    if (columns_[i].align == Align::kRight) pending += padding;
    if (!text.empty()) {
      line.add(std::string(pending, ' ')).add(text, cells[i].style);
      pending = 0;
    }
    if (columns_[i].align == Align::kLeft) pending += padding;
    pending += kGap;
  }
  return line.render(width, colour);
}

std::vector<std::string> TextTable::render(std::size_t width, bool colour) const {
  const std::vector<std::size_t> widths = fitted_widths(width);
  std::vector<Cell> titles;
  for (const Column& column : columns_) titles.push_back(Cell{column.title, Style::kBold});
  std::vector<std::string> lines{render_line(titles, widths, width, colour)};
  for (const auto& row : rows_) lines.push_back(render_line(row, widths, width, colour));
  return lines;
}

std::string join_lines(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text.append(line).push_back('\n');
  return text;
}

}  // namespace ingero::cli
