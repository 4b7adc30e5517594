// SPDX-License-Identifier: Apache-2.0
#include "config/setting_kinds.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/byte_size.h"
#include "base/text.h"
#include "config/duration.h"

namespace ingero::config {
namespace {

using std::chrono::nanoseconds;
using namespace std::chrono_literals;

bool is_letter_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/// Letters, digits and `others`, and nothing else.
bool consists_of(std::string_view text, std::string_view others) {
  return std::all_of(text.begin(), text.end(), [&](char c) {
    return is_letter_or_digit(c) || others.find(c) != others.npos;
  });
}

bool is_plain_path(std::string_view text) {
  const bool odd =
      std::any_of(text.begin(), text.end(), [](unsigned char c) { return c < ' ' || c == 0x7f; });
  const std::string path = std::string(text) + "/";
  const bool winding = path.find("/./") != path.npos || path.find("/../") != path.npos;
  return !odd && !winding && text.size() <= 1024 && text.starts_with('/') &&
         path.find("//") == path.npos;
}

/// The words of a list, which a comma or white space separates.
std::vector<std::string> split_list(std::string_view text) {
  std::vector<std::string> words;
  std::size_t at = 0;
  while ((at = text.find_first_not_of(", \t", at)) != text.npos) {
    const std::size_t end = std::min(text.find_first_of(", \t", at), text.size());
    words.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

std::string join_list(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, ", "));
}

std::string as_it_is(const std::string& text) { return text; }

constexpr std::size_t kMaxListWords = 64;

Result<std::vector<std::string>> parse_names(std::string_view text) {
  auto words = split_list(text);
  if (words.size() > kMaxListWords)
    return bad_value("more than 64 names", "use wildcards, such as app*");
  for (const std::string& word : words) {
    if (!consists_of(word, "._-/*?") || word.size() > 317)
      return bad_value(quoted(word) + " is not the name of a label",
                       "write names such as app or batch.kubernetes.io/job-name");
  }
  return words;
}

constexpr int kDurationEnds = 28;

Result<nanoseconds> parse_bucket_end(const std::string& word) {
  const auto value = parse_duration(word);
  if (!value) {
    return bad_value(quoted(word) + " is not a duration", "write ends such as 16us, 1024us");
  }
  for (int i = 0; i < kDurationEnds; ++i) {
    if (*value == nanoseconds(1us) * (1 << i)) return *value;
  }
  nanoseconds nearest = 1us;
  for (int i = 1; i < kDurationEnds && nearest < *value; ++i) nearest *= 2;
  return bad_value(quoted(word) + " is no end of a bucket: they are 1us times a power of 2",
                   fmt::format("write {}", format_duration(nearest)));
}

Result<std::vector<nanoseconds>> parse_buckets(std::string_view text) {
  std::vector<nanoseconds> ends;
  for (const std::string& word : split_list(text)) {
    const auto end = parse_bucket_end(word);
    if (!end) return fail(end.error());
    ends.push_back(*end);
  }
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  return ends;
}

std::string format_buckets(const std::vector<nanoseconds>& ends) {
  std::vector<std::string> words;
  words.reserve(ends.size());
  for (const nanoseconds end : ends) words.push_back(format_duration(end));
  return join_list(words);
}

}  // namespace

tl::unexpected<Error> bad_value(std::string cause, std::string hint) {
  return fail(Error{"", "", std::move(cause), std::move(hint), 0});
}

std::string quoted(std::string_view text) {
  return fmt::format("\"{}\"", escape_terminal(truncate(text, 64)));
}

SettingKind<bool> bool_kind() {
  const auto parse = [](std::string_view text) -> Result<bool> {
    if (text == "true" || text == "false") return text == "true";
    return bad_value(quoted(text) + " is not true or false", "write true or false");
  };
  return {"bool", "", parse, [](bool value) { return value ? "true" : "false"; }};
}

SettingKind<nanoseconds> duration_kind(nanoseconds min, nanoseconds max) {
  const std::string range = fmt::format("{} to {}", format_duration(min), format_duration(max));
  const auto parse = [min, max, range](std::string_view text) -> Result<nanoseconds> {
    const auto value = parse_duration(text);
    if (!value)
      return bad_value(quoted(text) + " is not a duration",
                       "write a number with a unit, such as 500ms, 10s or 1m30s");
    if (*value < min || *value > max)
      return bad_value(quoted(text) + " is out of range", "write a duration from " + range);
    return *value;
  };
  return {"duration", range, parse, format_duration};
}

SettingKind<std::uint32_t> integer_kind(std::uint32_t min, std::uint32_t max) {
  const std::string range = fmt::format("{} to {}", min, max);
  const auto parse = [min, max, range](std::string_view text) -> Result<std::uint32_t> {
    std::uint64_t value = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    const bool number = !text.empty() && stop == end;
    if (!number || error == std::errc::invalid_argument)
      return bad_value(quoted(text) + " is not a whole number", "write a number from " + range);
    if (error != std::errc() || value < min || value > max)
      return bad_value(quoted(text) + " is out of range", "write a number from " + range);
    return static_cast<std::uint32_t>(value);
  };
  return {"integer", range, parse, [](std::uint32_t value) { return std::to_string(value); }};
}

SettingKind<std::uint64_t> size_kind(std::uint64_t min, std::uint64_t max) {
  const std::string range =
      fmt::format("0, or {} to {}", format_byte_size(min), format_byte_size(max));
  const auto parse = [min, max, range](std::string_view text) -> Result<std::uint64_t> {
    const auto bytes = text == "0" ? std::optional<std::uint64_t>(0) : parse_byte_size(text);
    if (!bytes)
      return bad_value(quoted(text) + " is not a size",
                       "write a number with a unit, such as 512MiB or 4GiB");
    if (*bytes != 0 && (*bytes < min || *bytes > max))
      return bad_value(quoted(text) + " is out of range", "write " + range);
    return *bytes;
  };
  return {"size", range, parse, format_byte_size};
}

SettingKind<std::string> path_kind() {
  const auto parse = [](std::string_view text) -> Result<std::string> {
    if (is_plain_path(text)) return std::string(text);
    return bad_value(quoted(text) + " is not an absolute path",
                     "write a path such as /var/lib/ingero/recordings");
  };
  return {"path", "absolute", parse, as_it_is};
}

SettingKind<ListenAddress> address_kind() {
  const auto parse = [](std::string_view text) -> Result<ListenAddress> {
    auto address = parse_listen_address(text);
    if (address) return address;
    return bad_value(quoted(text) + ": " + address.error().cause, address.error().hint);
  };
  return {"address", "host:port", parse,
          [](const ListenAddress& value) { return to_string(value); }};
}

SettingKind<std::string> name_kind() {
  const auto parse = [](std::string_view text) -> Result<std::string> {
    if (consists_of(text, "._-") && text.size() <= 253) return std::string(text);
    return bad_value(quoted(text) + " is not a host name",
                     "write at most 253 letters, digits, dots, dashes or underscores");
  };
  return {"string", "at most 253 of a-z A-Z 0-9 . _ -", parse, as_it_is};
}

SettingKind<std::vector<std::string>> names_kind() {
  return {"list", "at most 64 names, * and ? as wildcards", parse_names, join_list};
}

SettingKind<std::vector<nanoseconds>> buckets_kind() {
  return {"list", "1us times powers of 2, up to 134217728us", parse_buckets, format_buckets};
}

}  // namespace ingero::config
