// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>

#include <limits>
#include <sstream>
#include <string>

#include "base/log.h"
#include "base/text.h"

namespace ingero {
namespace {

TEST(FormatCount, PutsACommaBeforeEachThreeDigits) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000), "1,000");
  EXPECT_EQ(format_count(1234567), "1,234,567");
  EXPECT_EQ(format_count(std::numeric_limits<std::uint64_t>::max()), "18,446,744,073,709,551,615");
}

TEST(FormatBytes, ShowsThreeDigitsInPowersOf1024) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.00 KiB");
  EXPECT_EQ(format_bytes(1.5 * 1024 * 1024), "1.50 MiB");
  EXPECT_EQ(format_bytes(12.34 * 1024 * 1024 * 1024), "12.3 GiB");
  EXPECT_EQ(format_bytes(1024.0 * 1024 * 1024 * 1024), "1.00 TiB");
}

TEST(FormatBytes, NeverRoundsTo1024OfAUnit) {
  EXPECT_EQ(format_bytes(1024 * 1024 - 1), "1.00 MiB");
  EXPECT_EQ(format_bytes(1023.4 * 1024), "1023 KiB");
}

TEST(FormatBytes, SurvivesValuesThatAreNoSizes) {
  EXPECT_EQ(format_bytes(std::numeric_limits<double>::quiet_NaN()), "? B");
  EXPECT_EQ(format_bytes(-1), "? B");
}

TEST(FormatRate, ShowsEventsPerSecond) {
  EXPECT_EQ(format_rate(0.5), "0.50/s");
  EXPECT_EQ(format_rate(12.34), "12.3/s");
  EXPECT_EQ(format_rate(12345.4), "12,345/s");
  EXPECT_EQ(format_rate(1e30), "1.00e+30/s");
  EXPECT_EQ(format_byte_rate(2048), "2.00 KiB/s");
}

TEST(FormatDuration, PicksTheUnitThatKeepsThreeDigits) {
  EXPECT_EQ(format_duration_ns(0), "0 ns");
  EXPECT_EQ(format_duration_ns(840), "840 ns");
  EXPECT_EQ(format_duration_ns(12'300), "12.3 us");
  EXPECT_EQ(format_duration_ns(4'560'000), "4.56 ms");
  EXPECT_EQ(format_duration_ns(1'200'000'000), "1.20 s");
  EXPECT_EQ(format_duration_ns(125'000'000'000), "2m05s");
  EXPECT_EQ(format_duration_ns(11'220'000'000'000), "3h07m");
}

TEST(FormatDuration, NeverRoundsTo1000OfAUnit) {
  EXPECT_EQ(format_duration_ns(999'600), "1.00 ms");
  EXPECT_EQ(format_duration_ns(999'999'999), "1.00 s");
  EXPECT_EQ(format_duration_ns(99'990'000'000), "1m40s");
  EXPECT_EQ(format_duration_ns(3'599'990'000'000), "1h00m");
}

TEST(EscapeTerminal, MakesControlCharactersVisible) {
  EXPECT_EQ(escape_terminal("a\x1b[2Jb\nc\x7f"), "a\\x1b[2Jb\\x0ac\\x7f");
  EXPECT_EQ(escape_terminal(std::string("a\0b", 3)), "a\\x00b");
}

TEST(EscapeTerminal, MakesTheEightBitControlsVisible) {
  EXPECT_EQ(escape_terminal("\xc2\x9b"
                            "31m"),
            "\\xc2\\x9b31m");
}

TEST(EscapeTerminal, MakesCharactersThatReorderTheLineVisible) {
  EXPECT_EQ(escape_terminal("a\u202eb\u2066c\u200bd"),
            "a\\xe2\\x80\\xaeb\\xe2\\x81\\xa6c\\xe2\\x80\\x8bd");
}

TEST(EscapeTerminal, LeavesOtherTextAsItIs) {
  EXPECT_EQ(escape_terminal("Größe 模型 🚀 a\\x2db"), "Größe 模型 🚀 a\\x2db");
}

TEST(EscapeTerminal, MakesBytesThatAreNotUtf8Visible) {
  EXPECT_EQ(escape_terminal("\xff\xc3"), "\\xff\\xc3");
  EXPECT_EQ(escape_terminal("\xc0\xaf"), "\\xc0\\xaf");                    // overlong
  EXPECT_EQ(escape_terminal("\xed\xa0\x80"), "\\xed\\xa0\\x80");           // surrogate
  EXPECT_EQ(escape_terminal("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");  // above U+10FFFF
  EXPECT_EQ(escape_terminal("\xe2\x82x"), "\\xe2\\x82x");                  // cut short
}

TEST(EscapeJson, WritesWhatJsonNeeds) {
  EXPECT_EQ(escape_json("a\"b\\c\nd\te\r"), "a\\\"b\\\\c\\nd\\te\\r");
  EXPECT_EQ(escape_json("\x1b"), "\\u001b");
  EXPECT_EQ(escape_json("ü\xff"), "ü\\ufffd");
  EXPECT_EQ(escape_json("\u2028"), "\\u2028");
}

TEST(Truncate, CutsWholeCharactersAndSaysSo) {
  EXPECT_EQ(truncate("abcdef", 6), "abcdef");
  EXPECT_EQ(truncate("abcdefg", 6), "abcde…");
  EXPECT_EQ(truncate("äöüäöü", 4), "äöü…");
  EXPECT_EQ(truncate("ab", 1), "…");
  EXPECT_EQ(truncate("ab", 0), "");
  EXPECT_EQ(truncate("", 3), "");
}

TEST(ShortId, KeepsTwelveCharacters) {
  EXPECT_EQ(short_id("0123456789abcdef0123"), "0123456789ab");
  EXPECT_EQ(short_id("abc"), "abc");
}

class ManualClock : public ClockSource {
 public:
  std::uint64_t monotonic_ns() const override { return now_ns; }
  std::uint64_t boottime_ns() const override { return now_ns; }
  std::uint64_t realtime_ns() const override { return now_ns; }
  std::uint64_t now_ns = 1;
};

TEST(RateLimiter, PassesOneMessagePerKeyAndIntervalAndCountsTheOthers) {
  ManualClock clock;
  RateLimiter limiter(std::chrono::seconds(10), 8, clock);
  EXPECT_EQ(limiter.admit("a"), 0U);
  EXPECT_EQ(limiter.admit("a"), std::nullopt);
  EXPECT_EQ(limiter.admit("b"), 0U);
  EXPECT_EQ(limiter.admit("a"), std::nullopt);
  clock.now_ns += 10'000'000'000;
  EXPECT_EQ(limiter.admit("a"), 2U);
  EXPECT_EQ(limiter.admit("a"), std::nullopt);
}

TEST(RateLimiter, LetsKeysBeyondItsLimitShareOneSlot) {
  ManualClock clock;
  RateLimiter limiter(std::chrono::seconds(10), 2, clock);
  int passed = 0;
  for (int i = 0; i < 1000; ++i) passed += limiter.admit("key" + std::to_string(i)) ? 1 : 0;
  EXPECT_EQ(passed, 3);
  clock.now_ns += 10'000'000'000;
  EXPECT_EQ(limiter.admit("new"), 0U) << "slots whose interval is over are free again";
}

std::string logged(LogFormat format, const std::string& message) {
  std::ostringstream out;
  spdlog::logger logger("test", std::make_shared<spdlog::sinks::ostream_sink_st>(out));
  logger.set_formatter(make_log_formatter(format));
  logger.warn("{}", message);
  return out.str();
}

TEST(Log, WritesOneTextLinePerMessageWhateverItHolds) {
  const std::string line = logged(LogFormat::text, "forged\n2026 error \x1b[31m");
  EXPECT_NE(line.find("Z warn  forged\\x0a2026 error \\x1b[31m\n"), std::string::npos) << line;
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
}

TEST(Log, WritesOneJsonObjectPerMessageWhateverItHolds) {
  const std::string line = logged(LogFormat::json, "a \"quote\"\nand more");
  EXPECT_EQ(line.rfind("{\"time\":\"2", 0), 0U) << line;
  EXPECT_NE(line.find(R"("level":"warn","message":"a \"quote\"\nand more"})"), std::string::npos);
}

TEST(Log, SaysHowManyMessagesWereSuppressed) {
  ManualClock clock;
  RateLimiter limiter(std::chrono::seconds(1), 8, clock);
  std::ostringstream out;
  const auto before = spdlog::default_logger();
  spdlog::set_default_logger(std::make_shared<spdlog::logger>(
      "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(out)));
  for (int i = 0; i < 4; ++i) log_limited(limiter, LogLevel::warn, "key", "map is full");
  clock.now_ns += 1'000'000'000;
  log_limited(limiter, LogLevel::warn, "key", "map is full");
  spdlog::set_default_logger(before);
  const std::string text = out.str();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
  EXPECT_NE(text.find("map is full (3 similar messages suppressed)"), std::string::npos) << text;
}

TEST(Log, ChangesLevelInPlaceWhenSetUpAgain) {
  setup_log(LogLevel::error, LogFormat::text);
  const auto* const first = spdlog::default_logger_raw();
  EXPECT_EQ(first->level(), spdlog::level::err);
  setup_log(LogLevel::debug, LogFormat::json);
  EXPECT_EQ(spdlog::default_logger_raw(), first);
  EXPECT_EQ(first->level(), spdlog::level::debug);
}

}  // namespace
}  // namespace ingero
