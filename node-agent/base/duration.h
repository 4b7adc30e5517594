// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace ingero {

/// Reads "10s", "1.5ms", "1m30s", "0"; units ns, us, ms, s, m, h. nullopt: not a duration,
/// negative, or more than 292 years.
std::optional<std::chrono::nanoseconds> parse_duration(std::string_view text);

/// The shortest exact form in one unit: "10s", "1500ms", "0s".
std::string format_duration(std::chrono::nanoseconds duration);

}  // namespace ingero
