// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "app/pod_recordings.h"
#include "k8s/event_recorder.h"

namespace ingero::app {

/// Makes Events of what changes about the recordings of pods: each begins, ends, or is refused once.
class RecordingEvents {
 public:
  /// What was to end before `since_unix_s` is from before this agent, which told it.
  explicit RecordingEvents(std::int64_t since_unix_s) : since_unix_s_(since_unix_s) {}

  /// What has changed since the last call. Pods that are not in the list are forgotten.
  std::vector<k8s::Event> changes(const std::vector<PodRecordingStatus>& recordings);

 private:
  struct Told {
    std::string state;
    std::int64_t started_unix_s = 0;
    std::string refusal;  ///< without its numbers, which change with the room that is left
  };

  std::int64_t since_unix_s_;
  std::map<std::string, Told> told_;  ///< by the pod's uid
};

}  // namespace ingero::app
