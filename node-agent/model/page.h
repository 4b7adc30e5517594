// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace ingero::model {

/// A page for people, in the terminal or as HTML. Texts may come from anybody: who prints it escapes it.
struct PageTable {
  struct Column {
    std::string title;
    bool right = false;
    int drop_order = 0;  ///< left out of a narrow terminal, highest first; 0: never
    bool whole = false;  ///< its texts are not cut there
  };
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;
};

/// Values over time.
struct PagePlot {
  std::string title;
  std::string unit;  ///< of the values
  double seconds = 0;
  struct Series {
    std::string name;
    std::vector<double> values;  ///< evenly spread over the seconds; negative: none
  };
  std::vector<Series> series;  ///< drawn on a logarithmic scale
  struct Counts {
    std::string name;                   ///< of what is counted
    std::vector<std::uint64_t> values;  ///< evenly spread over the seconds
  };
  std::vector<Counts> counts;
};

struct PageSection {
  std::string title;
  std::vector<std::string> lines;  ///< sentences before the table
  PageTable table;                 ///< no rows: none
  std::vector<PagePlot> plots;
};

struct Page {
  std::string title;
  std::vector<PageSection> sections;
};

}  // namespace ingero::model
