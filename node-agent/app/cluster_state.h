// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "app/cluster.h"
#include "app/workloads.h"

namespace ingero::app {

/// Adds what /debug/state tells of the cluster: watches, policies, and each container with the reason
/// why it is not traced.
void add_cluster_state(Cluster& cluster, const std::vector<CoveredContainer>& containers,
                       nlohmann::json& state);

}  // namespace ingero::app
