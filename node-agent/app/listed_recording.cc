// SPDX-License-Identifier: Apache-2.0
#include "app/listed_recording.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <charconv>
#include <chrono>

#include "app/patience.h"
#include "base/text.h"
#include "base/utf8.h"
#include "record/recording.h"
#include "record/state_rows.h"

namespace ingero::app {
namespace {

using namespace std::chrono_literals;
using model::Value;

constexpr std::size_t kMaxReasonBytes = 200;
// A file that takes longer is none of ours.
constexpr auto kPatience = 2s;

/// Calls that a file may lack: those that its writer lost, and those that did not reach the agent.
std::string facts_sql() {
  const std::array reasons = {std::string_view("call_stream_full"),
                              record::kWriterBehind,
                              record::kDiskFull,
                              record::kBudgetReached,
                              record::kFileRemoved,
                              record::kWriteError};
  return fmt::format(
      "SELECT started_ns, ended_ns, substr(end_reason, 1, {}), nccl_calls + cuda_calls, "
      "(SELECT SUM(count) FROM losses WHERE reason IN ('{}')) FROM recording LIMIT 1",
      kMaxReasonBytes, fmt::join(reasons, "', '"));
}

std::optional<std::int64_t> integer_of(const Value& value) {
  std::int64_t number = 0;
  const char* const end = value.text.data() + value.text.size();
  const auto [stop, error] = std::from_chars(value.text.data(), end, number);
  if (value.kind != Value::Kind::kInteger || error != std::errc() || stop != end || number < 0)
    return std::nullopt;
  return number;
}

class Facts final : public model::RowSink {
 public:
  explicit Facts(ListedRecording& into) : into_(into) {}
  void begin(const std::vector<std::string>&) override {}
  bool row(std::span<const Value> values) override {
    found = true;
    into_.started_ns = integer_of(values[0]);
    into_.ended_ns = integer_of(values[1]);
    if (values[2].kind == Value::Kind::kText)
      into_.end_reason = cut_utf8(escape_terminal(values[2].text), kMaxReasonBytes);
    into_.calls = integer_of(values[3]);
    into_.lost = integer_of(values[4]);
    return false;
  }
  void end() override {}
  bool found = false;

 private:
  ListedRecording& into_;
};

}  // namespace

ListedRecording list_recording(record::PodFile file) {
  ListedRecording recording;
  recording.file = std::move(file);
  const auto opened = record::Recording::open({recording.file.path});
  if (!opened) {
    recording.error = opened.error().cause;
    return recording;
  }
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  Facts facts(recording);
  const auto read = record::run_sql(*opened, facts_sql(), facts, [&](std::uint64_t) {
    return was_interrupted() || std::chrono::steady_clock::now() > deadline;
  });
  if (!read) recording.error = read.error().message;
  else if (!facts.found) recording.error = "it says nothing about itself";
  return recording;
}

}  // namespace ingero::app
