// SPDX-License-Identifier: Apache-2.0
#include "export/agent_metrics.h"

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/text.h"

namespace ingero::exporting {
namespace {

void add_reasons(MetricId id, const std::map<std::string, std::uint64_t>& counts,
                 FamilySet& families) {
  for (const auto& [reason, count] : counts) {
    families.add(id, {escape_terminal(reason)}, static_cast<double>(count));
  }
}

void add_probes(const model::Snapshot& snapshot, FamilySet& families) {
  std::map<std::pair<model::LibraryKind, model::AttachMethod>, std::size_t> probes;
  // Zeros for the libraries that the agent waits for, so that an idle node is told from a dead
  // agent.
  for (const auto kind :
       {model::LibraryKind::kNccl, model::LibraryKind::kCudart, model::LibraryKind::kCuda}) {
    probes[{kind, snapshot.method}] = 0;
  }
  for (const model::Library& library : snapshot.libraries) {
    if (!library.probes.empty()) probes[{library.kind, library.method}] += library.probes.size();
  }
  for (const auto& [key, count] : probes) {
    families.add(MetricId::kProbesAttached,
                 {model::to_string(key.first), model::to_string(key.second)},
                 static_cast<double>(count));
  }
}

void add_recordings(const RecordingCounts& counts, FamilySet& families) {
  const std::pair<const char*, std::size_t> states[] = {
      {"recording", counts.recording}, {"ended", counts.ended}, {"refused", counts.refused}};
  for (const auto& [state, pods] : states)
    families.add(MetricId::kRecordings, {state}, static_cast<double>(pods));
  families.add(MetricId::kRecordedCalls, {}, static_cast<double>(counts.calls));
  families.add(MetricId::kRecordingLostCalls, {}, static_cast<double>(counts.lost));
}

}  // namespace

void add_agent_metrics(const model::Snapshot& snapshot, FamilySet& families) {
  add_reasons(MetricId::kEventsLost, snapshot.events_lost, families);
  add_reasons(MetricId::kAttachFailures, snapshot.attach_failures, families);
  add_reasons(MetricId::kUnattributedCalls, snapshot.unattributed_calls, families);
  add_probes(snapshot, families);
}

void add_status(const AgentStatus& status, FamilySet& families) {
  families.add(MetricId::kNodeReady, {}, status.ready ? 1 : 0);
  families.add(MetricId::kConfigReloaded, {}, status.config_accepted ? 1 : 0);
  for (const auto& [policy, active] : status.policies)
    families.add(MetricId::kPolicyActive, {escape_terminal(policy)}, active ? 1 : 0);
  if (status.recordings) add_recordings(*status.recordings, families);
}

void add_dropped(const DroppedSeries& dropped, FamilySet& families) {
  families.add(MetricId::kSeriesDropped, {"budget"}, static_cast<double>(dropped.budget));
  families.add(MetricId::kSeriesDropped, {"error_codes"}, static_cast<double>(dropped.error_codes));
}

void add_process_stats(const ProcessStats& stats, FamilySet& families) {
  const std::pair<MetricId, std::optional<double>> values[] = {
      {MetricId::kProcessCpu, stats.cpu_seconds},
      {MetricId::kProcessResident, stats.resident_bytes},
      {MetricId::kProcessVirtual, stats.virtual_bytes},
      {MetricId::kProcessOpenFds, stats.open_fds},
      {MetricId::kProcessMaxFds, stats.max_fds},
      {MetricId::kProcessStartTime, stats.start_time_unix_seconds},
      {MetricId::kProcessThreads, stats.threads},
  };
  for (const auto& [id, value] : values) {
    if (value) families.add(id, {}, *value);
  }
}

}  // namespace ingero::exporting
