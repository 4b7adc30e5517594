// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace ingero::cli {

// Text that is laid out in terminal columns. Every string given here must be free of control
// characters: escape what others wrote with escape_terminal(). A code point counts as one column.

enum class Style { kPlain, kBold, kDim, kGreen, kYellow, kRed };

/// The text in its style, by ANSI colour sequences; as it is when `colour` is off or the style is
/// plain.
std::string styled(std::string_view text, Style style, bool colour);

/// Number of code points.
std::size_t display_width(std::string_view text);

struct Cell {
  std::string text;
  Style style = Style::kPlain;
};

/// One line of differently styled pieces.
class StyledLine {
 public:
  StyledLine& add(std::string_view text, Style style = Style::kPlain);
  /// At most `width` columns (0: any number), the last one an ellipsis if something was cut off.
  std::string render(std::size_t width, bool colour) const;

 private:
  std::vector<Cell> pieces_;
};

enum class Align { kLeft, kRight };

struct Column {
  std::string title;
  Align align = Align::kLeft;
  /// Never narrower while there is room: keeps a live table from jittering.
  std::size_t reserved = 0;
  /// May be cut down to this width when the table is too wide; 0: is never cut.
  std::size_t shrink_to = 0;
  /// Dropped when the table is still too wide, highest first; 0: is never dropped.
  int drop_order = 0;
};

/// A table that fits a terminal: wide columns are cut, then dropped.
class TextTable {
 public:
  explicit TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}

  /// `cells` in the order of the columns; missing ones are empty.
  void add_row(std::vector<Cell> cells);
  /// The title line and one line per row, without trailing blanks. `width` 0: any width.
  std::vector<std::string> render(std::size_t width, bool colour) const;

 private:
  std::vector<std::size_t> natural_widths() const;
  std::vector<std::size_t> fitted_widths(std::size_t width) const;
  std::string render_line(const std::vector<Cell>& cells, const std::vector<std::size_t>& widths,
                          std::size_t width, bool colour) const;

  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

/// The lines joined by line feeds, with one at the end of each.
std::string join_lines(const std::vector<std::string>& lines);

}  // namespace ingero::cli
