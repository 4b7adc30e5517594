// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "cli/host_check.h"

namespace ingero::cli {

/// One screen for people: a line per finding with its verdict, the hint below where it matters, and
/// a last line with the verdict on the whole. `width` in columns, 0: any; long text goes on in the
/// next line.
std::string render_check(const CheckReport& report, std::size_t width, bool colour);

/// {"verdict": "ok", "exit_status": 0, "lines": [{"name", "value", "verdict", "hint"}, ...]} and a
/// line feed. Text that is not UTF-8 is replaced, so that the output always parses.
std::string check_json(const CheckReport& report);

}  // namespace ingero::cli
