// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <spdlog/spdlog.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/clock.h"

namespace ingero {

enum class LogLevel { trace, debug, info, warn, error };
enum class LogFormat { text, json };

/// Sends spdlog's default logger to stderr, one line per message, whatever the message holds: text
/// "2026-01-31T12:00:00.123Z warn  message" or json {"time":...,"level":...,"message":...}. Times
/// are UTC. Can be called again to change level and format. Log with spdlog::info() and so on.
void setup_log(LogLevel level, LogFormat format);

/// The line formatter behind setup_log(), for a logger with another sink.
std::unique_ptr<spdlog::formatter> make_log_formatter(LogFormat format);

/// Lets one message per key and interval through and counts the others. Thread safe. Holds at most
/// `max_keys` keys; further keys share one slot, so a flood of distinct keys stays bounded too.
class RateLimiter {
 public:
  explicit RateLimiter(std::chrono::nanoseconds interval, std::size_t max_keys = 1024,
                       const ClockSource& clock = system_clock_source());

  /// The number of messages suppressed since the last one that passed, or nullopt: suppress this
  /// one.
  std::optional<std::uint64_t> admit(std::string_view key);

 private:
  struct Slot {
    std::uint64_t next_ns = 0;
    std::uint64_t suppressed = 0;
  };
  Slot& slot_for(std::string_view key, std::uint64_t now_ns);

  const std::uint64_t interval_ns_;
  const std::size_t max_keys_;
  const ClockSource& clock_;
  std::mutex mutex_;
  std::unordered_map<std::string, Slot> slots_;
  Slot overflow_;
};

/// Logs `message` unless one with this key passed within the limiter's interval; a message that
/// follows suppressed ones says how many they were.
void log_limited(RateLimiter& limiter, LogLevel level, std::string_view key,
                 std::string_view message);

}  // namespace ingero
