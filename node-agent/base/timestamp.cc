// SPDX-License-Identifier: Apache-2.0
#include "base/timestamp.h"

#include <fmt/chrono.h>

#include <ctime>

namespace ingero {

namespace {
constexpr std::uint64_t kNsPerSecond = 1'000'000'000;
std::tm utc(std::uint64_t unix_ns) {
  return fmt::gmtime(static_cast<std::time_t>(unix_ns / kNsPerSecond));
}
}  // namespace

std::string format_timestamp(std::uint64_t unix_ns) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}Z", utc(unix_ns));
}

std::string format_micro_timestamp(std::uint64_t unix_ns) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:06}Z", utc(unix_ns), unix_ns % kNsPerSecond / 1000);
}

}  // namespace ingero
