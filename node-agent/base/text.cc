// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <iterator>

namespace ingero {
namespace {

constexpr std::size_t kShortIdLength = 12;

/// Three significant digits: 1.23, 12.3, 123.
std::string three_digits(double value) {
  // The limits are where rounding would give a fourth digit.
  if (value < 9.995) return fmt::format("{:.2f}", value);
  if (value < 99.95) return fmt::format("{:.1f}", value);
  return fmt::format("{:.0f}", value);
}

struct CodePoint {
  char32_t value = 0;
  std::size_t length = 0;  ///< bytes; 0: not UTF-8
};

/// The code point at the front of `text` (not empty). Overlong forms and surrogates are not UTF-8.
CodePoint decode_utf8(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < length) return {};
  char32_t value = lead & (0xffU >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    value = (value << 6) | (byte(i) & 0x3fU);
  }
  constexpr std::array<char32_t, 5> smallest{0, 0, 0x80, 0x800, 0x10000};
  if (value < smallest[length] || value > 0x10ffff || (value >= 0xd800 && value <= 0xdfff))
    return {};
  return {value, length};
}

/// Characters that move the cursor, reorder the line or take no room in it.
bool is_deceptive(char32_t c) {
  return c < 0x20 || (c >= 0x7f && c <= 0x9f) || c == 0x00ad || c == 0x061c ||
         (c >= 0x200b && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) ||
         (c >= 0x2060 && c <= 0x206f) || c == 0xfeff || (c >= 0xfff9 && c <= 0xfffb) ||
         (c >= 0xe0000 && c <= 0xe007f);
}

void append_json(std::string& out, char32_t c, std::string_view bytes) {
  switch (c) {
    case '"': out += "\\\""; return;
    case '\\': out += "\\\\"; return;
    case '\n': out += "\\n"; return;
    case '\r': out += "\\r"; return;
    case '\t': out += "\\t"; return;
    default: break;
  }
  if (is_deceptive(c) && c < 0x10000) {
    fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<std::uint32_t>(c));
  } else {
    out += bytes;
  }
}

}  // namespace

std::string format_count(std::uint64_t value) {
  std::string text = std::to_string(value);
  for (std::size_t i = text.size(); i > 3; i -= 3) text.insert(i - 3, 1, ',');
  return text;
}

std::string format_bytes(double bytes) {
  constexpr std::array units{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (!(bytes >= 0)) return "? B";
  if (bytes < 1023.5) return fmt::format("{:.0f} B", bytes);
  std::size_t unit = 0;
  double value = bytes / 1024;
  // 1023.5: the next unit as soon as rounding would show 1024.
  for (; value >= 1023.5 && unit + 1 < units.size(); ++unit) value /= 1024;
  return fmt::format("{} {}", three_digits(value), units[unit]);
}

std::string format_byte_rate(double bytes_per_second) {
  return format_bytes(bytes_per_second) + "/s";
}

std::string format_rate(double per_second) {
  if (!(per_second >= 0)) return "?/s";
  if (per_second < 999.5) return three_digits(per_second) + "/s";
  if (per_second > 1e18) return fmt::format("{:.2e}/s", per_second);
  return format_count(static_cast<std::uint64_t>(std::llround(per_second))) + "/s";
}

std::string format_duration_ns(std::uint64_t ns) {
  const double value = static_cast<double>(ns);
  if (ns < 1000) return fmt::format("{} ns", ns);
  if (value < 999.5e3) return three_digits(value / 1e3) + " us";
  if (value < 999.5e6) return three_digits(value / 1e6) + " ms";
  if (value < 99.95e9) return three_digits(value / 1e9) + " s";
  const std::uint64_t seconds = (ns / 100'000'000 + 5) / 10;
  if (seconds < 3600) return fmt::format("{}m{:02}s", seconds / 60, seconds % 60);
  return fmt::format("{}h{:02}m", seconds / 3600, seconds % 3600 / 60);
}

std::string escape_terminal(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const CodePoint point = decode_utf8(text);
    const std::size_t length = point.length == 0 ? 1 : point.length;
    if (point.length != 0 && !is_deceptive(point.value)) {
      out += text.substr(0, length);
    } else {
      for (const char c : text.substr(0, length)) {
        fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<unsigned char>(c));
      }
    }
    text.remove_prefix(length);
  }
  return out;
}

std::string escape_json(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const CodePoint point = decode_utf8(text);
    const std::size_t length = point.length == 0 ? 1 : point.length;
    if (point.length == 0) {
      out += "\\ufffd";
    } else {
      append_json(out, point.value, text.substr(0, length));
    }
    text.remove_prefix(length);
  }
  return out;
}

std::string truncate(std::string_view text, std::size_t width) {
  if (width == 0) return "";
  std::size_t characters = 0;
  std::size_t offset = 0;
  std::size_t cut = 0;  // where the text ends if an ellipsis must follow
  while (offset < text.size()) {
    if (characters + 1 == width) cut = offset;
    if (characters == width) return std::string(text.substr(0, cut)) + "…";
    const CodePoint point = decode_utf8(text.substr(offset));
    offset += point.length == 0 ? 1 : point.length;
    ++characters;
  }
  return std::string(text);
}

std::string short_id(std::string_view id) { return std::string(id.substr(0, kShortIdLength)); }

}  // namespace ingero
