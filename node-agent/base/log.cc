// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <fmt/chrono.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <utility>

#include "base/text.h"

namespace ingero {
namespace {

constexpr const char* kLoggerName = "ingero";

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::trace: return spdlog::level::trace;
    case LogLevel::debug: return spdlog::level::debug;
    case LogLevel::info: return spdlog::level::info;
    case LogLevel::warn: return spdlog::level::warn;
    case LogLevel::error: return spdlog::level::err;
  }
  return spdlog::level::info;
}

std::string_view level_name(spdlog::level::level_enum level) {
  switch (level) {
    case spdlog::level::trace: return "trace";
    case spdlog::level::debug: return "debug";
    case spdlog::level::info: return "info";
    case spdlog::level::warn: return "warn";
    case spdlog::level::err: return "error";
    case spdlog::level::critical: return "critical";
    case spdlog::level::off:
    case spdlog::level::n_levels: break;
  }
  return "info";
}

std::string utc_time(std::chrono::system_clock::time_point time) {
  using std::chrono::duration_cast;
  const auto since_epoch = time.time_since_epoch();
  const auto ms = duration_cast<std::chrono::milliseconds>(since_epoch).count() % 1000;
  const std::time_t seconds = duration_cast<std::chrono::seconds>(since_epoch).count();
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(seconds), ms);
}

/// Escapes every message here, in one place: a process name in a message cannot forge a second line
/// or drive the terminal.
class LineFormatter final : public spdlog::formatter {
 public:
  explicit LineFormatter(LogFormat format) : format_(format) {}

  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
    const std::string_view payload(message.payload.data(), message.payload.size());
    const std::string time = utc_time(message.time);
    const std::string_view level = level_name(message.level);
    auto end = fmt::appender(out);
    switch (format_) {
      case LogFormat::text:
        fmt::format_to(end, "{} {:<5} {}\n", time, level, escape_terminal(payload));
        return;
      case LogFormat::json:
        fmt::format_to(end, "{{\"time\":\"{}\",\"level\":\"{}\",\"message\":\"{}\"}}\n", time,
                       level, escape_json(payload));
        return;
    }
  }

  std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<LineFormatter>(format_);
  }

 private:
  LogFormat format_;
};

}  // namespace

std::unique_ptr<spdlog::formatter> make_log_formatter(LogFormat format) {
  return std::make_unique<LineFormatter>(format);
}

void setup_log(LogLevel level, LogFormat format) {
  // A logger in use is changed in place: replacing it would pull it from under other threads.
  if (spdlog::default_logger_raw()->name() == kLoggerName) {
    spdlog::default_logger_raw()->set_formatter(make_log_formatter(format));
    spdlog::default_logger_raw()->set_level(to_spdlog(level));
    return;
  }
  auto logger = std::make_shared<spdlog::logger>(kLoggerName,
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_formatter(make_log_formatter(format));
  logger->set_level(to_spdlog(level));
  logger->flush_on(spdlog::level::trace);
  spdlog::set_default_logger(std::move(logger));
}

RateLimiter::RateLimiter(std::chrono::nanoseconds interval, std::size_t max_keys,
                         const ClockSource& clock)
    : interval_ns_(interval.count() > 0 ? static_cast<std::uint64_t>(interval.count()) : 0),
      max_keys_(max_keys),
      clock_(clock) {}

RateLimiter::Slot& RateLimiter::slot_for(std::string_view key, std::uint64_t now_ns) {
  std::string name(key);
  if (auto it = slots_.find(name); it != slots_.end()) return it->second;
  if (slots_.size() >= max_keys_) {
    // What a dropped key still had to report is reported by the shared slot.
    std::erase_if(slots_, [this, now_ns](const auto& item) {
      if (item.second.next_ns > now_ns) return false;
      overflow_.suppressed += item.second.suppressed;
      return true;
    });
  }
  if (slots_.size() >= max_keys_) return overflow_;
  return slots_[std::move(name)];
}

std::optional<std::uint64_t> RateLimiter::admit(std::string_view key) {
  const std::uint64_t now_ns = clock_.monotonic_ns();
  const std::lock_guard lock(mutex_);
  Slot& slot = slot_for(key, now_ns);
  if (now_ns < slot.next_ns) {
    ++slot.suppressed;
    return std::nullopt;
  }
  slot.next_ns = now_ns + interval_ns_;
  return std::exchange(slot.suppressed, 0);
}

void log_limited(RateLimiter& limiter, LogLevel level, std::string_view key,
                 std::string_view message) {
  const std::optional<std::uint64_t> suppressed = limiter.admit(key);
  if (!suppressed) return;
  if (*suppressed == 0) {
    spdlog::log(to_spdlog(level), "{}", message);
  } else {
    spdlog::log(to_spdlog(level), "{} ({} similar messages suppressed)", message, *suppressed);
  }
}

}  // namespace ingero
