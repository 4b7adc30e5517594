// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "policy/label_selector.h"
#include "policy/recording_wish.h"

namespace ingero::policy {

/// A GpuTracePolicy. The defaults are those of the CRD's schema.
struct TracePolicy {
  std::string name;
  std::string uid;
  std::int64_t generation = 0;
  std::string resource_version;

  LabelSelector namespace_selector;
  LabelSelector pod_selector;
  LabelSelector node_selector;
  std::vector<std::string> included_containers{"*"};  ///< globs
  std::vector<std::string> excluded_containers;       ///< globs; they win

  bool nccl_enabled = true;
  std::vector<std::string> nccl_functions{"*"};  ///< globs
  bool cuda_memcpy_enabled = true;
  /// nullopt: that of the settings; 0: no call counts as slow.
  std::optional<std::chrono::nanoseconds> slow_call_threshold;
  std::vector<std::string> pod_labels;       ///< keys that become labels of the series
  std::vector<std::string> pod_annotations;  ///< likewise
  std::optional<std::uint32_t> max_series;   ///< nullopt: no limit of its own
  std::optional<RecordingSpec> recording;    ///< nullopt: none is asked for
  bool operator==(const TracePolicy&) const = default;
};

/// Whether two states of an object have the same spec; the resource version also changes with the
/// status.
bool has_same_spec(const TracePolicy& a, const TracePolicy& b);

/// Reads a GpuTracePolicy object. Unknown fields are skipped, as a newer schema may have more; a
/// wrong type or a value out of bounds is an error that names the field. An empty list of included
/// containers or functions means all of them.
Result<TracePolicy> parse_policy(const nlohmann::json& object);

}  // namespace ingero::policy
