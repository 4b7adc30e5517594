// SPDX-License-Identifier: Apache-2.0
#include "report/condition.h"

#include "base/timestamp.h"
#include "report/status_text.h"

namespace ingero::report {

namespace {

using nlohmann::json;

constexpr std::size_t kMaxReasonBytes = 128;
constexpr std::size_t kTimestampLength = 20;  // "2026-01-31T12:00:00Z"

const char* to_string(ConditionStatus status) {
  switch (status) {
    case ConditionStatus::yes: return "True";
    case ConditionStatus::no: return "False";
    case ConditionStatus::unknown: return "Unknown";
  }
  return "Unknown";
}

/// Since when the status is this one; empty: it was another, or none.
std::string transition_before(const json& status_before, const std::string& status) {
  for (const json& condition : array_at(status_before, "conditions")) {
    if (text_at(condition, "type", 64) != "Ready") continue;
    if (text_at(condition, "status", 64) != status) return "";
    const std::string time = text_at(condition, "lastTransitionTime", 64);
    return time.size() == kTimestampLength ? time : "";
  }
  return "";
}

}  // namespace

json make_ready_conditions(const Condition& ready, const json& status_before,
                           std::uint64_t now_unix_ns) {
  const std::string status = to_string(ready.status);
  std::string since = transition_before(status_before, status);
  if (since.empty()) since = format_timestamp(now_unix_ns);
  json condition{{"type", "Ready"},
                 {"status", status},
                 {"lastTransitionTime", since},
                 {"reason", clean(ready.reason, kMaxReasonBytes)},
                 {"message", clean(ready.message, kMaxMessageBytes)}};
  if (ready.observed_generation) condition["observedGeneration"] = *ready.observed_generation;
  return json::array({std::move(condition)});
}

}  // namespace ingero::report
