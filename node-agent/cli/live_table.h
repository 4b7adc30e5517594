// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "cli/container_name.h"
#include "cli/live_rows.h"

namespace ingero::cli {

/// What one frame of `ingero trace` shows.
struct LiveView {
  TimedSnapshot previous;  ///< of the frame before; none at the first one
  TimedSnapshot current;
  ContainerLabel container_of;
  std::uint64_t uptime_ns = 0;  ///< of the agent
};

struct FrameOptions {
  std::size_t width = 80;   ///< columns; 0: any number
  std::size_t height = 24;  ///< lines; 0: any number
  bool colour = false;
};

/// The text of one frame: a line of totals, then the table, or what is being waited for. At most
/// `height` lines of at most `width` columns, each ended by a line feed but the last. No other
/// control characters than colours, whatever names processes give themselves.
std::string render_frame(const LiveView& view, const FrameOptions& options);

/// For output that is no terminal: one line per row that had calls in the interval, each with the
/// time (UTC) in front, plus a line when events were lost. Nothing to trace yet: one line that says
/// so. Empty when nothing happened.
std::string render_plain(const LiveView& view);

}  // namespace ingero::cli
