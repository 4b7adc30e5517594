// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string_view>

#include "record/recording.h"

namespace ingero::record {

/// Writes the recording as a time line in the trace event format, which Perfetto and Chromium's tracing page
/// open: a track per thread, a track per rank of each communicator, retransmits and waits as instants, flows
/// between the ranks of one collective. `write` returns false when nobody takes more.
Status export_time_line(const Recording& recording,
                        const std::function<bool(std::string_view)>& write, const Watch& watch);

}  // namespace ingero::record
