// SPDX-License-Identifier: Apache-2.0
#include "app/choices.h"

#include <unistd.h>

#include <cerrno>

namespace ingero::app {
namespace {

using model::AttachMethod;

AttachMethod to_model(config::AttachMethod method) {
  switch (method) {
    case config::AttachMethod::session: return AttachMethod::kSession;
    case config::AttachMethod::multi: return AttachMethod::kMulti;
    case config::AttachMethod::perf: return AttachMethod::kPerf;
    case config::AttachMethod::entry_only: return AttachMethod::kEntryOnly;
    case config::AttachMethod::automatic: break;
  }
  return AttachMethod::kNone;
}

/// Why no method works, the most likely cause first.
Error no_method(std::string details) {
  constexpr const char* kBtf = "/sys/kernel/btf/vmlinux";
  if (::access(kBtf, R_OK) != 0)
    return {"load BPF programs", kBtf, fmt::format("no kernel BTF: {}", std::strerror(errno)),
            "needs a kernel built with CONFIG_DEBUG_INFO_BTF, and the host's /sys in a container; "
            "`ingero check` tells more"};
  if (::geteuid() != 0)
    return {"load BPF programs", "", fmt::format("not root: {}", details),
            "run it with sudo, or give it CAP_BPF and CAP_PERFMON; `ingero check` tells what is "
            "missing"};
  return {"choose attach method", "", std::move(details), "`ingero check` tells what is missing"};
}

}  // namespace

cgroup_source source_of(attribute::CgroupHierarchy hierarchy) {
  switch (hierarchy) {
    case attribute::CgroupHierarchy::v2: return CGROUP_V2;
    case attribute::CgroupHierarchy::memory_v1: return CGROUP_V1_MEMORY;
    case attribute::CgroupHierarchy::pids_v1: return CGROUP_V1_PIDS;
  }
  return CGROUP_V2;
}

std::optional<attribute::CgroupHierarchy> forced_hierarchy(config::CgroupHierarchyChoice choice) {
  switch (choice) {
    case config::CgroupHierarchyChoice::automatic: return std::nullopt;
    case config::CgroupHierarchyChoice::v2: return attribute::CgroupHierarchy::v2;
    case config::CgroupHierarchyChoice::memory: return attribute::CgroupHierarchy::memory_v1;
    case config::CgroupHierarchyChoice::pids: return attribute::CgroupHierarchy::pids_v1;
  }
  return std::nullopt;
}

discover::OpenPreference open_preference(config::OpenMethod method) {
  switch (method) {
    case config::OpenMethod::automatic: return discover::OpenPreference::kAutomatic;
    case config::OpenMethod::map_files: return discover::OpenPreference::kMapFiles;
    case config::OpenMethod::path: return discover::OpenPreference::kProcRoot;
  }
  return discover::OpenPreference::kAutomatic;
}

policy::AgentDefaults policy_defaults(const config::Config& config) {
  return {config.default_action == config::DefaultAction::trace, config.probes.nccl,
          config.probes.cuda, static_cast<std::uint64_t>(config.slow_call_threshold.count())};
}

policy::AgentDefaults trace_all(policy::AgentDefaults defaults) {
  defaults.trace_unmatched = true;
  return defaults;
}

cgroup_policy kernel_policy(const policy::Decision& decision, bool streamed) {
  return {decision.functions.nccl, decision.slow_call_ns, decision.functions.cuda ? 1U : 0U,
          streamed ? 1U : 0U};
}

Result<AttachMethod> choose_method(const std::vector<attach::MethodTrial>& trials,
                                   config::AttachMethod wanted) {
  std::set<std::string> details;  // most often the same for each method
  for (const attach::MethodTrial& trial : trials) {
    const bool asked_for =
        wanted == config::AttachMethod::automatic || to_model(wanted) == trial.method ||
        (wanted == config::AttachMethod::entry_only && trial.method == AttachMethod::kPerf);
    if (!asked_for) continue;
    if (trial.works)
      return wanted == config::AttachMethod::entry_only ? AttachMethod::kEntryOnly : trial.method;
    details.insert(trial.detail);
  }
  return fail(no_method(fmt::format("{}", fmt::join(details, "; "))));
}

}  // namespace ingero::app
