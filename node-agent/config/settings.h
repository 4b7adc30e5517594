// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "config/config.h"

namespace ingero::config {

/// One row of the table of settings.
struct Setting {
  std::string_view key;   ///< as in YAML; a dot is a level: "probes.nccl"
  std::string type;       ///< "bool", "duration", "integer", "string", "address", or "a | b | c"
  std::string range;      ///< for people, such as "100ms to 1h"; empty: what the type says
  std::string_view help;  ///< one sentence
  bool live = false;      ///< a running agent takes a change over without a restart
  /// Sets the value from its text; the error holds only cause and hint.
  std::function<Status(Config&, std::string_view)> assign;
  /// The value as text that assign() reads.
  std::function<std::string(const Config&)> format;
};

/// All settings, in the order of the documentation. A new setting is a member of Config and a row
/// here.
std::span<const Setting> settings();

/// The setting with this key, or nullptr.
const Setting* find_setting(std::string_view key);

/// The setting or group ("probes") whose name is nearest to `key`, or "" if none is near.
std::string nearest_key(std::string_view key);

}  // namespace ingero::config
