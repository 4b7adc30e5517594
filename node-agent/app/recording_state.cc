// SPDX-License-Identifier: Apache-2.0
#include "app/recording_state.h"

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "report/node_report.h"

namespace ingero::app {

using nlohmann::json;

json recordings_state(const std::vector<PodRecordingStatus>& recordings) {
  json rows = json::array();
  for (const PodRecordingStatus& recording : recordings) {
    rows.push_back({{"namespace", recording.k8s_namespace},
                    {"pod", recording.pod},
                    {"pod_uid", recording.uid},
                    {"policies", recording.policies},
                    {"state", recording.state},
                    {"message", escape_terminal(recording.message)},
                    {"started_unix_s", recording.started_unix_s},
                    {"ends_unix_s", recording.ends_unix_s},
                    {"file", escape_terminal(recording.files.path)},
                    {"files", recording.files.files},
                    {"bytes", recording.files.bytes},
                    {"calls", recording.files.calls},
                    {"lost", recording.files.lost},
                    {"stopped", recording.files.stopped},
                    {"trouble", escape_terminal(recording.files.ended)}});
  }
  return rows;
}

exporting::RecordingCounts count_recordings(const std::vector<PodRecordingStatus>& recordings,
                                            const RecordingTotals& totals) {
  exporting::RecordingCounts counts;
  for (const PodRecordingStatus& recording : recordings) {
    if (recording.state == report::kRecordingState) ++counts.recording;
    else if (recording.state == report::kRefusedState) ++counts.refused;
    else ++counts.ended;
  }
  counts.calls = totals.calls;
  counts.lost = totals.lost;
  return counts;
}

}  // namespace ingero::app
