// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "model/identity.h"

namespace ingero::exporting {

/// Whom a cgroup belongs to: the values of the labels that every workload series carries.
struct Workload {
  std::string k8s_namespace;  ///< empty outside Kubernetes
  std::string pod;            ///< empty outside Kubernetes
  std::string container;      ///< container id, else the cgroup's path; empty: not known
  bool operator==(const Workload&) const = default;
};

/// Called once per cgroup and scrape, from the scrape's thread; must not wait for I/O.
using WorkloadLookup = std::function<Workload(model::CgroupId)>;

}  // namespace ingero::exporting
