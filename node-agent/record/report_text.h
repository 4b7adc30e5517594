// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "base/text.h"
#include "base/timestamp.h"
#include "record/call_scan.h"

namespace ingero::record {

/// How the page of a report writes what it tells.
inline std::string count_text(std::uint64_t count) { return format_count(count); }
inline std::string time_text(double ns) {
  return format_duration_ns(static_cast<std::uint64_t>(std::clamp(ns, 0.0, 1e18)));
}
inline std::string time_text(std::int64_t ns) { return time_text(static_cast<double>(ns)); }
inline std::string clock_text(std::int64_t unix_ns) {
  return format_micro_timestamp(static_cast<std::uint64_t>(std::max<std::int64_t>(unix_ns, 0)));
}
inline std::string date_text(std::int64_t unix_ns) {
  return format_timestamp(static_cast<std::uint64_t>(std::max<std::int64_t>(unix_ns, 0)));
}
inline std::string rank_text(const CallContext& context) {
  if (!context.rank) return "?";
  return context.nranks ? fmt::format("{}/{}", *context.rank, *context.nranks)
                        : std::to_string(*context.rank);
}
inline std::string comm_text(const std::string& hash) {
  return hash.empty() ? "?" : hash.substr(0, 8);
}

}  // namespace ingero::record
