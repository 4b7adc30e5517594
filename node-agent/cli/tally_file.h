// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/summary.h"

namespace ingero::cli {

/// Reads a workload's tally: an object whose array "functions" (or "calls") holds objects with
/// "function", "direction", "calls", "errors", "bytes" and, where calls were left by longjmp,
/// "unreturned" (the agent counts those calls too). Every line gets `container`.
Result<std::vector<TallyLine>> parse_tally(std::string_view text, const std::string& container);

}  // namespace ingero::cli
