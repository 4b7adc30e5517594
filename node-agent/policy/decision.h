// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "policy/trace_policy.h"

namespace ingero::policy {

/// One container, as far as policies look at it.
struct Target {
  std::string_view k8s_namespace;
  const Labels& namespace_labels;
  const Labels& pod_labels;
  std::string_view container;
};

/// Which functions count, in the form that the BPF programs get.
struct FunctionSet {
  std::uint64_t nccl = 0;  ///< bit per function id of bpf/api_functions.h
  bool cuda = false;       ///< all copies and synchronizations, runtime and driver

  bool empty() const { return nccl == 0 && !cuda; }
  bool contains(std::uint16_t function_id) const;
  FunctionSet operator|(const FunctionSet& other) const {
    return {nccl | other.nccl, cuda || other.cuda};
  }
  FunctionSet operator&(const FunctionSet& other) const {
    return {nccl & other.nccl, cuda && other.cuda};
  }
  bool operator==(const FunctionSet&) const = default;
};

/// NCCL functions of which the symbol or the operation matches a glob: "ncclAllReduce" is also
/// ncclAllReduceConfig. Groups and the life of communicators are always there, as the ranks of the
/// other calls come from them.
FunctionSet select_nccl_functions(const std::vector<std::string>& globs);

/// What is done with a container.
struct Decision {
  bool traced = false;
  FunctionSet functions;           ///< empty when not traced
  std::uint64_t slow_call_ns = 0;  ///< 0: no call counts as slow
  std::vector<std::string> pod_labels;
  std::vector<std::string> pod_annotations;
  std::uint32_t max_series = 0;            ///< 0: no limit of its own
  std::vector<std::string> policies;       ///< names of those that match
  std::optional<RecordingWish> recording;  ///< nullopt: none is asked for, or nothing is traced
  std::string reason;                      ///< why not; empty when traced
  bool operator==(const Decision&) const = default;
};

/// The agent's own settings, as far as policies meet them.
struct AgentDefaults {
  bool trace_unmatched = true;  ///< what happens where no policy matches
  bool nccl = true;             ///< off: in no policy either
  bool cuda = true;             ///< likewise
  std::uint64_t slow_call_ns = 0;
  bool operator==(const AgentDefaults&) const = default;
};

/// All policies, as they hold on one node. Immutable.
class PolicySet {
 public:
  struct Entry {
    TracePolicy policy;
    bool selects_node = false;
    FunctionSet functions;
  };

  PolicySet(std::vector<TracePolicy> policies, const Labels& node_labels, AgentDefaults defaults);

  /// Several policies that match: all their probes and labels, the smallest threshold, the tightest
  /// limit. A policy that leaves the container out does not match.
  Decision decide(const Target& target) const;
  /// For what no policy can select, such as a process outside of pods.
  Decision decide_unmatched() const;

  /// By name; those that do not select this node included.
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  Decision merge(const std::vector<const Entry*>& matching) const;

  std::vector<Entry> entries_;
  AgentDefaults defaults_;
  FunctionSet allowed_;  ///< by the settings
};

}  // namespace ingero::policy
