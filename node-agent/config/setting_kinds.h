// SPDX-License-Identifier: Apache-2.0
// The kinds of settings: how the text of a value is read and written. A kind gives its own bounds and hints.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/listen_address.h"
#include "config/settings.h"

namespace ingero::config {

/// How a value of type T is read and written.
template <typename T>
struct SettingKind {
  std::string type;   ///< as in Setting
  std::string range;  ///< as in Setting
  /// The error holds only cause and hint.
  std::function<Result<T>(std::string_view)> parse;
  /// The value as text that parse() reads.
  std::function<std::string(const T&)> format;
};

/// What a row of the table says whatever its kind is.
struct RowText {
  std::string_view key;
  std::string_view help;
  bool live;
};

/// A row of the table. `member` is a generic lambda that names a member of Config, const or not.
template <typename T, typename Member>
Setting make_setting(RowText row, SettingKind<T> kind, Member member) {
  return Setting{
      row.key,
      std::move(kind.type),
      std::move(kind.range),
      row.help,
      row.live,
      [member, parse = std::move(kind.parse)](Config& config, std::string_view text) -> Status {
        auto value = parse(text);
        if (!value) return fail(std::move(value.error()));
        member(config) = std::move(*value);
        return {};
      },
      [member, format = std::move(kind.format)](const Config& config) {
        return format(member(config));
      }};
}

/// The error of a value that is not taken, for parse().
tl::unexpected<Error> bad_value(std::string cause, std::string hint);

/// What was written, in quotes, short and without control characters.
std::string quoted(std::string_view text);

SettingKind<bool> bool_kind();
SettingKind<std::chrono::nanoseconds> duration_kind(std::chrono::nanoseconds min,
                                                    std::chrono::nanoseconds max);
SettingKind<std::uint32_t> integer_kind(std::uint32_t min, std::uint32_t max);
/// Bytes, 0 or `min` to `max`.
SettingKind<std::uint64_t> size_kind(std::uint64_t min, std::uint64_t max);
/// An absolute path without . and .. in it.
SettingKind<std::string> path_kind();
SettingKind<ListenAddress> address_kind();
/// A Kubernetes node name (a DNS name), or empty.
SettingKind<std::string> name_kind();
/// Names of labels, in which * and ? stand for anything and for one character.
SettingKind<std::vector<std::string>> names_kind();
/// Ends of duration buckets, in order and each once.
SettingKind<std::vector<std::chrono::nanoseconds>> buckets_kind();

template <typename E>
struct Choice {
  std::string_view name;
  E value;
};

/// One of a few names.
template <typename E>
SettingKind<E> one_of(const std::vector<Choice<E>>& choices) {
  std::string names;
  for (const Choice<E>& choice : choices)
    names += fmt::format("{}{}", names.empty() ? "" : " | ", choice.name);
  const auto parse = [choices, names](std::string_view text) -> Result<E> {
    for (const Choice<E>& choice : choices)
      if (choice.name == text) return choice.value;
    return bad_value(quoted(text) + " is not one of the choices", "write one of " + names);
  };
  const auto format = [choices](E value) {
    for (const Choice<E>& choice : choices)
      if (choice.value == value) return std::string(choice.name);
    return std::string();
  };
  return {names, "", parse, format};
}

}  // namespace ingero::config
