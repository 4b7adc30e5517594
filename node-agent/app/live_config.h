// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"

namespace ingero::app {

/// How the newest settings were taken.
struct ConfigStatus {
  bool accepted = true;
  std::string error;    ///< why the newest text is refused; empty: it is not
  std::string source;   ///< file, or namespace/name of the ConfigMap; empty: built-in defaults
  std::string version;  ///< of the text in force: resourceVersion, or a hash of the file
  std::string hash;     ///< of the settings in force, wherever they come from: 16 hex digits
  /// Keys that are not as they were at the start, and cannot change live.
  std::vector<std::string> waiting_for_restart;
  std::uint64_t reloads = 0;
};

/// The settings in force, and how new ones get there: all of a text, or nothing of it. Thread safe.
class LiveConfig {
 public:
  /// Flags of the command line, which win over any text.
  using Overrides = std::function<Status(config::Config&)>;
  /// Puts settings into force. An error: they can't be; what was before holds then.
  using Applier = std::function<Status(const config::Config&)>;

  LiveConfig(config::Config initial, Overrides overrides)
      : config_(std::move(initial)), overrides_(std::move(overrides)) {}

  void set_applier(Applier applier) { applier_ = std::move(applier); }

  /// The agent is made of the settings of now: from here on, not all of them can change.
  config::Config start();

  config::Config config() const;
  ConfigStatus status() const;

  /// Settings from a text. An error names source and line; the last good ones stay in force then. The
  /// version that is in force changes nothing.
  Status take(std::string_view yaml, const std::string& source, const std::string& version);
  /// The source has gone or cannot be read: the last good settings stay.
  void refuse(const std::string& source, const std::string& reason);

 private:
  bool is_in_force(const std::string& source, const std::string& version) const;
  Result<config::Config> read(std::string_view yaml, const std::string& source) const;

  mutable std::mutex mutex_;
  config::Config config_;
  std::optional<config::Config> started_;  ///< what the agent was made of
  const Overrides overrides_;
  Applier applier_;
  ConfigStatus status_;
};

}  // namespace ingero::app
