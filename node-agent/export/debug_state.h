// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "export/workload.h"
#include "model/snapshot.h"

namespace ingero::exporting {

/// /debug/state: what is found, attached, refused and lost, and what the agent waits for. `extra`
/// is an object whose members are added (settings, resolver statistics, ...); members of the state
/// win. Strings of others are escaped to one line of printable UTF-8.
nlohmann::json debug_state(const model::Snapshot& snapshot, const WorkloadLookup& lookup,
                           const nlohmann::json& extra);

/// What is missing before there is something to show; empty when calls are counted.
std::vector<std::string> waiting_for(const model::Snapshot& snapshot, bool called);

/// The body of /debug/state, two spaces a level, with a newline at the end.
Result<std::string> debug_state_text(const model::Snapshot& snapshot, const WorkloadLookup& lookup,
                                     const nlohmann::json& extra);

}  // namespace ingero::exporting
