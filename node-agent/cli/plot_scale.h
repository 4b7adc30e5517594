// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "base/text.h"
#include "model/page.h"

namespace ingero::cli {

/// A logarithmic scale over whole decades: what is usual and what is a thousand times as long are both seen.
struct PlotScale {
  int bottom = 0, top = 1;  ///< powers of ten
  bool any = false;         ///< is there anything to draw?

  explicit PlotScale(const model::PagePlot& plot) {
    double smallest = 0, largest = 0;
    for (const model::PagePlot::Series& series : plot.series)
      for (const double value : series.values) {
        if (value <= 0) continue;
        smallest = any ? std::min(smallest, value) : value;
        largest = any ? std::max(largest, value) : value;
        any = true;
      }
    if (!any) return;
    bottom = static_cast<int>(std::floor(std::log10(smallest)));
    top = std::max(static_cast<int>(std::ceil(std::log10(largest))), bottom + 1);
  }

  /// 0 at the bottom, 1 at the top.
  double share(double value) const {
    const double at = value > 0 ? std::log10(value) : bottom;
    return std::clamp((at - bottom) / (top - bottom), 0.0, 1.0);
  }
  static double value_of(int power) { return std::pow(10.0, power); }
};

/// A value of the plot with its unit; milliseconds as what suits their size.
inline std::string value_text(const model::PagePlot& plot, double value) {
  if (plot.unit != "ms") return fmt::format("{:.3g} {}", value, plot.unit);
  return format_duration_ns(static_cast<std::uint64_t>(std::llround(value * 1e6)));
}

}  // namespace ingero::cli
