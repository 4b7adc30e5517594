// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "model/identity.h"

namespace ingero::exporting {

/// Whom a cgroup belongs to: the values of the labels that every workload series carries.
struct Workload {
  std::string k8s_namespace;  ///< empty outside Kubernetes
  std::string pod;            ///< empty outside Kubernetes
  /// Name in the pod; elsewhere the container id, else the cgroup's path; empty: not known.
  std::string container;
  /// Further labels, name (a Prometheus label that no metric has) and value, in order of the names.
  std::vector<std::pair<std::string, std::string>> labels;
  std::uint32_t max_series = 0;  ///< of its pod, in lines of /metrics; 0: no limit of its own
  bool exported = true;          ///< false: it has no series, nor a part in "other"
  bool operator==(const Workload&) const = default;
};

/// Called once per cgroup and scrape, from the scrape's thread; must not wait for I/O.
using WorkloadLookup = std::function<Workload(model::CgroupId)>;

}  // namespace ingero::exporting
