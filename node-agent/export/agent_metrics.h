// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "export/family_set.h"
#include "export/process_stats.h"
#include "model/snapshot.h"

namespace ingero::exporting {

/// ingero_events_lost_total and the other counters of what went wrong, ingero_probes_attached.
void add_agent_metrics(const model::Snapshot& snapshot, FamilySet& families);

/// Recordings of pods that policies ask for.
struct RecordingCounts {
  std::size_t recording = 0, ended = 0, refused = 0;  ///< pods, by state
  std::uint64_t calls = 0, lost = 0;                  ///< since the agent started
};

/// How the agent itself is.
struct AgentStatus {
  bool ready = true;
  bool config_accepted = true;                         ///< the newest settings hold
  std::vector<std::pair<std::string, bool>> policies;  ///< name, whether it is in force here
  std::optional<RecordingCounts> recordings;           ///< nullopt: outside of a cluster
};
/// ingero_node_ready and what belongs to it.
void add_status(const AgentStatus& status, FamilySet& families);

/// Series that have no place of their own, each counted when its folding began.
struct DroppedSeries {
  std::uint64_t budget = 0;
  std::uint64_t error_codes = 0;
};
void add_dropped(const DroppedSeries& dropped, FamilySet& families);

/// process_*
void add_process_stats(const ProcessStats& stats, FamilySet& families);

}  // namespace ingero::exporting
