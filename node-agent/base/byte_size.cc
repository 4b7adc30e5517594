// SPDX-License-Identifier: Apache-2.0
#include "base/byte_size.h"

#include <charconv>
#include <utility>

namespace ingero {

std::optional<std::uint64_t> parse_byte_size(std::string_view text) {
  constexpr std::uint64_t kMax = std::uint64_t{1} << 63;
  constexpr std::pair<std::string_view, std::uint64_t> kUnits[] = {
      {"", 1},           {"B", 1},           {"kB", 1'000},
      {"MB", 1'000'000}, {"GB", 1000000000}, {"TB", 1000000000000},
      {"K", 1 << 10},    {"Ki", 1 << 10},    {"KiB", 1 << 10},
      {"M", 1 << 20},    {"Mi", 1 << 20},    {"MiB", 1 << 20},
      {"G", 1 << 30},    {"Gi", 1 << 30},    {"GiB", 1 << 30},
      {"T", 1ULL << 40}, {"Ti", 1ULL << 40}, {"TiB", 1ULL << 40}};
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || number == 0) return std::nullopt;
  const std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  for (const auto& [name, factor] : kUnits)
    if (name == unit && number <= kMax / factor) return number * factor;
  return std::nullopt;
}

std::string format_byte_size(std::uint64_t bytes) {
  constexpr std::pair<std::string_view, int> kUnits[] = {
      {"TiB", 40}, {"GiB", 30}, {"MiB", 20}, {"KiB", 10}};
  if (bytes == 0) return "0";
  for (const auto& [name, shift] : kUnits)
    if (bytes % (1ULL << shift) == 0) return std::to_string(bytes >> shift) + std::string(name);
  return std::to_string(bytes) + "B";
}

}  // namespace ingero
