// SPDX-License-Identifier: Apache-2.0
#include "app/recording_events.h"

#include <fmt/format.h>

#include "base/timestamp.h"
#include "record/state_rows.h"
#include "report/node_report.h"

namespace ingero::app {
namespace {

using k8s::EventType;

k8s::Event event_of(const PodRecordingStatus& recording, EventType type, const char* reason,
                    std::string message) {
  return {{"v1", "Pod", recording.k8s_namespace, recording.pod, recording.uid},
          type,
          reason,
          std::move(message)};
}

std::string time_text(std::int64_t unix_s) {
  return format_timestamp(static_cast<std::uint64_t>(std::max<std::int64_t>(unix_s, 0)) *
                          1'000'000'000);
}

k8s::Event begun(const PodRecordingStatus& recording) {
  return event_of(recording, EventType::normal, "Recording",
                  fmt::format("calls are recorded into {} until {}", recording.files.path,
                              time_text(recording.ends_unix_s)));
}

/// Full, with one file for all of it, is an end that the policy asks for.
k8s::Event ended(const PodRecordingStatus& recording) {
  const std::string& stopped = recording.files.stopped;
  const bool trouble = !stopped.empty() && stopped != record::kBudgetReached;
  return event_of(recording, trouble ? EventType::warning : EventType::normal, "RecordingEnded",
                  fmt::format("{}; {}", recording.message, recording.files.path));
}

}  // namespace

std::vector<k8s::Event> RecordingEvents::changes(
    const std::vector<PodRecordingStatus>& recordings) {
  std::vector<k8s::Event> events;
  std::map<std::string, Told> told;
  for (const PodRecordingStatus& recording : recordings) {
    const auto found = told_.find(recording.uid);
    const Told before = found == told_.end() ? Told{} : found->second;
    Told now{recording.state, recording.started_unix_s, ""};
    const bool same = before.state == now.state && before.started_unix_s == now.started_unix_s;
    if (recording.state == report::kRefusedState) {
      now.refusal = report::without_numbers(recording.message);
      if (before.state != now.state || before.refusal != now.refusal)
        events.push_back(
            event_of(recording, EventType::warning, "RecordingRefused", recording.message));
    } else if (recording.state == report::kRecordingState) {
      if (!same) events.push_back(begun(recording));
    } else if (!same) {
      const bool earlier = before.state.empty() && recording.ends_unix_s < since_unix_s_;
      if (!earlier) events.push_back(ended(recording));
    }
    told.insert_or_assign(recording.uid, std::move(now));
  }
  told_ = std::move(told);
  return events;
}

}  // namespace ingero::app
