// SPDX-License-Identifier: Apache-2.0
#include "app/live_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <algorithm>

namespace ingero::app {

config::Config LiveConfig::config() const {
  const std::lock_guard lock(mutex_);
  return config_;
}

ConfigStatus LiveConfig::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

Result<config::Config> LiveConfig::read(std::string_view yaml, const std::string& source) const {
  auto next = config::parse_config(yaml, source);
  if (!next || !overrides_) return next;
  if (auto status = overrides_(*next); !status) return fail(status.error());
  return next;
}

Status LiveConfig::take(std::string_view yaml, const std::string& source,
                        const std::string& version) {
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
  const auto restart = config::changed_settings(before, *next, true);
  if (!changed.empty()) spdlog::info("settings of {}: {}", source, fmt::join(changed, ", "));
  if (!restart.empty())
    spdlog::warn("settings of {}: {} take effect at the next start", source,
                 fmt::join(restart, ", "));
  const std::lock_guard lock(mutex_);
  config_ = *next;
  const std::uint64_t reloads = status_.reloads + 1;
  auto waiting = std::move(status_.waiting_for_restart);
  for (const std::string& key : restart)
    if (std::find(waiting.begin(), waiting.end(), key) == waiting.end()) waiting.push_back(key);
  status_ = {true, "", source, version, std::move(waiting), reloads};
  return {};
}

void LiveConfig::refuse(const std::string& source, const std::string& reason) {
  spdlog::error("settings refused, the last good ones stay: {}", reason);
  const std::lock_guard lock(mutex_);
  status_.accepted = false;
  status_.error = reason;
  if (status_.source.empty()) status_.source = source;
}

}  // namespace ingero::app
