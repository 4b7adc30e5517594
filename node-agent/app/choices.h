// SPDX-License-Identifier: Apache-2.0
// Settings in the words of the stages: they do not know each other's types.
#pragma once

#include <optional>
#include <vector>

#include "attach/bpf_object.h"
#include "attribute/cgroup_hierarchy.h"
#include "config/config.h"
#include "discover/library_finder.h"
#include "policy/decision.h"

namespace ingero::app {

/// How the BPF side finds the cgroup of a task.
cgroup_source source_of(attribute::CgroupHierarchy hierarchy);

std::optional<attribute::CgroupHierarchy> forced_hierarchy(config::CgroupHierarchyChoice choice);

discover::OpenPreference open_preference(config::OpenMethod method);

/// What the settings say where policies do not.
policy::AgentDefaults policy_defaults(const config::Config& config);
/// The same, with every container traced.
policy::AgentDefaults trace_all(policy::AgentDefaults defaults);
/// A decision in the words of the BPF programs.
cgroup_policy kernel_policy(const policy::Decision& decision, bool streamed = false);

/// Picks the method to attach with from what was tried and what the configuration asks for.
/// Errors: none works; the one asked for does not.
Result<model::AttachMethod> choose_method(const std::vector<attach::MethodTrial>& trials,
                                          config::AttachMethod wanted);

}  // namespace ingero::app
