// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "record/recording.h"

namespace ingero::record {

/// Writes a recording of one file, as it is at this moment, as one plain SQLite file that needs no log beside it. One
/// that has ended goes out as it is. One that still goes on, or was killed, is first put together in a
/// temporary file without a name, in the first of `folders` that takes it. The watch is told the bytes.
Status copy_recording(const Recording& recording, const std::vector<std::string>& folders,
                      const std::function<bool(std::string_view)>& write, const Watch& watch);

}  // namespace ingero::record
