// SPDX-License-Identifier: Apache-2.0
#include "base/duration.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <limits>

namespace ingero {
namespace {

struct Unit {
  std::string_view name;
  std::int64_t ns;
};

// Longer names before their first letters: "ms" is not "m".
constexpr std::array kUnits{
    Unit{"ns", 1},
    Unit{"us", 1'000},
    Unit{"ms", 1'000'000},
    Unit{"s", 1'000'000'000},
    Unit{"m", 60'000'000'000},
    Unit{"h", 3'600'000'000'000},
};
constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::size_t count_digits(std::string_view text) {
  std::size_t n = 0;
  while (n < text.size() && is_digit(text[n])) ++n;
  return n;
}

/// value * 10 + digit; false on overflow.
bool append_digit(std::int64_t& value, char digit) {
  const int number = digit - '0';
  if (value > (kMax - number) / 10) return false;
  value = value * 10 + number;
  return true;
}

/// One "<number><unit>" at the front of `text`, which is removed; nullopt: none, or too large.
std::optional<std::int64_t> take_part(std::string_view& text) {
  const std::size_t whole_digits = count_digits(text);
  const std::string_view whole = text.substr(0, whole_digits);
  text.remove_prefix(whole_digits);
  std::string_view fraction;
  if (text.starts_with('.')) {
    fraction = text.substr(1, count_digits(text.substr(1)));
    if (fraction.empty()) return std::nullopt;
    text.remove_prefix(1 + fraction.size());
  }
  if (whole.empty()) return std::nullopt;
  for (const Unit& unit : kUnits) {
    if (!text.starts_with(unit.name)) continue;
    text.remove_prefix(unit.name.size());
    std::int64_t value = 0;
    for (const char digit : whole) {
      if (!append_digit(value, digit)) return std::nullopt;
    }
    if (value > kMax / unit.ns) return std::nullopt;
    value *= unit.ns;
    std::int64_t step = unit.ns;
    for (const char digit : fraction) {
      step /= 10;  // digits below a nanosecond are dropped
      if (value > kMax - step * (digit - '0')) return std::nullopt;
      value += step * (digit - '0');
    }
    return value;
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::chrono::nanoseconds> parse_duration(std::string_view text) {
  if (text == "0") return std::chrono::nanoseconds(0);
  if (text.empty()) return std::nullopt;
  std::int64_t total = 0;
  while (!text.empty()) {
    const std::optional<std::int64_t> part = take_part(text);
    if (!part || *part > kMax - total) return std::nullopt;
    total += *part;
  }
  return std::chrono::nanoseconds(total);
}

std::string format_duration(std::chrono::nanoseconds duration) {
  const std::int64_t ns = duration.count();
  if (ns == 0) return "0s";
  for (std::size_t i = kUnits.size(); i-- > 0;) {
    if (ns % kUnits[i].ns == 0) return fmt::format("{}{}", ns / kUnits[i].ns, kUnits[i].name);
  }
  return fmt::format("{}ns", ns);
}

}  // namespace ingero
