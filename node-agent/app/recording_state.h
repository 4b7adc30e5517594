// SPDX-License-Identifier: Apache-2.0
// What /debug/state and /metrics tell of the recordings of pods.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "app/pod_recordings.h"
#include "export/agent_metrics.h"

namespace ingero::app {

/// A list, with all that is known of each.
nlohmann::json recordings_state(const std::vector<PodRecordingStatus>& recordings);

exporting::RecordingCounts count_recordings(const std::vector<PodRecordingStatus>& recordings,
                                            const RecordingTotals& totals);

}  // namespace ingero::app
