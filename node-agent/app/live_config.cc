// SPDX-License-Identifier: Apache-2.0
#include "app/live_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <utility>

namespace ingero::app {

config::Config LiveConfig::start() {
  const std::lock_guard lock(mutex_);
  started_ = config_;
  return config_;
}

config::Config LiveConfig::config() const {
  const std::lock_guard lock(mutex_);
  return config_;
}

ConfigStatus LiveConfig::status() const {
  const std::lock_guard lock(mutex_);
  ConfigStatus status = status_;
  status.hash = config::settings_hash(config_, started_ ? *started_ : config_);
  return status;
}

Result<config::Config> LiveConfig::read(std::string_view yaml, const std::string& source) const {
  auto next = config::parse_config(yaml, source);
  if (!next || !overrides_) return next;
  if (auto status = overrides_(*next); !status) return fail(status.error());
  return next;
}

bool LiveConfig::is_in_force(const std::string& source, const std::string& version) const {
  const std::lock_guard lock(mutex_);
  return status_.accepted && !version.empty() && status_.source == source &&
         status_.version == version;
}

Status LiveConfig::take(std::string_view yaml, const std::string& source,
                        const std::string& version) {
  if (is_in_force(source, version))
    return {};  // what was read at the start comes again by the watch
  const auto next = read(yaml, source);
  if (!next) {
    refuse(source, next.error().message());
    return fail(next.error());
  }
  const config::Config before = config();
  const auto changed = config::changed_settings(before, *next);
  if (applier_ && !changed.empty()) {
    if (auto status = applier_(*next); !status) {
      refuse(source, status.error().message());
      return status;
    }
  }
  if (!changed.empty()) spdlog::info("settings of {}: {}", source, fmt::join(changed, ", "));
  const std::lock_guard lock(mutex_);
  std::vector<std::string> waiting;
  if (started_) waiting = config::changed_settings(*started_, *next, true);
  if (!waiting.empty() && waiting != status_.waiting_for_restart)
    spdlog::warn("settings of {}: {} take effect at the next start", source,
                 fmt::join(waiting, ", "));
  config_ = *next;
  status_ = {true, "", source, version, "", std::move(waiting), status_.reloads + 1};
  return {};
}

void LiveConfig::refuse(const std::string& source, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  // What was refused at the start comes again by the watch.
  if (status_.accepted || status_.error != reason)
    spdlog::error("settings refused, the last good ones stay: {}", reason);
  status_.accepted = false;
  status_.error = reason;
  if (status_.source.empty()) status_.source = source;
}

}  // namespace ingero::app
