// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "report/condition.h"

namespace ingero::report {

/// What a policy selects on this node.
struct PolicyOnNode {
  std::string name;
  std::int64_t observed_generation = 0;
  std::uint32_t pods = 0;       ///< running ones that it selects
  std::uint32_t processes = 0;  ///< of them, traced
  bool ready = false;           ///< all that it selects here is traced
  std::string reason;
  std::string message;
};

/// A pod, or one of its containers, that is selected and not wholly traced.
struct UntracedContainer {
  std::string k8s_namespace;
  std::string pod;
  std::string container;  ///< empty: it is about the whole pod
  std::string reason;     ///< one word
  std::string message;
  std::string policy;
};

struct Loss {
  std::string reason;
  std::uint64_t count = 0;
};

/// A recording of a pod that policies ask for.
struct RecordedPod {
  std::string k8s_namespace;
  std::string pod;
  std::vector<std::string> policies;  ///< that ask for it
  std::string state;                  ///< "Recording", "Ended" or "Refused"
  std::string message;                ///< why it ended, or was refused
  std::string file;                   ///< the newest one, on the node
  std::uint32_t files = 0;
  std::uint64_t bytes = 0;
  std::uint64_t calls = 0;
  std::uint64_t lost = 0;                            ///< calls
  std::int64_t started_unix_s = 0, ends_unix_s = 0;  ///< 0: not known
};
inline constexpr const char* kRecordingState = "Recording";
inline constexpr const char* kEndedState = "Ended";
inline constexpr const char* kRefusedState = "Refused";

/// What an agent tells about its node. Fields as in crds/gputracenodes.yaml.
struct NodeReport {
  std::string agent_version;
  std::string agent_pod;
  std::string kernel;
  std::string architecture;
  std::string method;
  std::string cgroup_hierarchy;
  std::uint32_t probes = 0;
  std::uint32_t files = 0;
  std::uint32_t pods = 0;
  std::uint32_t processes = 0;
  std::uint64_t series = 0;
  std::uint64_t calls = 0;
  std::vector<Loss> losses;  ///< lostEvents is their sum; those of 0 are left out
  std::string config_generation;
  std::string config_hash;
  std::string config_error;
  std::vector<PolicyOnNode> policies;  ///< those that select this node
  std::vector<UntracedContainer> untraced;
  std::vector<RecordedPod> recordings;
  Condition ready;
};

/// The status of a GpuTraceNode, within the bounds of its schema. `before` is the status that was
/// built last, or that the API server has; it may hold anything.
nlohmann::json build_node_status(const NodeReport& report, const nlohmann::json& before,
                                 std::uint64_t now_unix_ns);

/// A refusal that names the room that is left is the same one when that changes.
std::string without_numbers(std::string text);

/// Whether two statuses differ in nothing but when they were observed, and in what changes with every
/// call: such a change is worth a write now and then only.
bool is_same_but_for_counts(const nlohmann::json& before, const nlohmann::json& after);

}  // namespace ingero::report
