// SPDX-License-Identifier: Apache-2.0
#include "policy/decision.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "model/functions.h"
#include "policy/glob.h"

namespace ingero::policy {

namespace {

constexpr std::uint16_t kNcclIds = 64;

#define INGERO_IN_MASK(id, symbol, operation, family, source, shape) &&((id) < kNcclIds)
static_assert(true API_NCCL_FUNCTIONS(INGERO_IN_MASK), "an NCCL function has no bit in the mask");
#undef INGERO_IN_MASK

const char kNamespaceNameLabel[] = "kubernetes.io/metadata.name";

bool gives_ranks(api_family family) {
  switch (family) {
    case API_NCCL_GROUP_START:
    case API_NCCL_GROUP_END:
    case API_NCCL_COMM_INIT_RANK:
    case API_NCCL_COMM_INIT_SCALABLE:
    case API_NCCL_COMM_INIT_ALL:
    case API_NCCL_COMM_SPLIT:
    case API_NCCL_COMM_SHRINK:
    case API_NCCL_COMM_GROW:
    case API_NCCL_COMM_END:
    case API_NCCL_COMM_CALL:
    case API_NCCL_COMM_POLL:
    case API_NCCL_GET_UNIQUE_ID: return true;
    case API_FAMILY_NONE:
    case API_NCCL_COLLECTIVE:
    case API_CUDA_COPY:
    case API_CUDA_SET_DEVICE:
    case API_CUDA_STREAM_END:
    case API_CUDA_STREAM_SYNC: return false;
  }
  return false;
}

bool selects_container(const TracePolicy& policy, std::string_view container) {
  return any_glob_matches(policy.included_containers, container) &&
         !any_glob_matches(policy.excluded_containers, container);
}

void add_all(std::vector<std::string>& to, const std::vector<std::string>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

void sort_unique(std::vector<std::string>& items) {
  std::sort(items.begin(), items.end());
  items.erase(std::unique(items.begin(), items.end()), items.end());
}

void add_recording(const TracePolicy& policy, std::optional<RecordingWish>& wish) {
  if (!policy.recording) return;
  if (!wish) wish.emplace(RecordingWish{*policy.recording, {}, ""});
  RecordingSpec& all = wish->spec;
  all.duration = std::max(all.duration, policy.recording->duration);
  all.max_bytes = std::max(all.max_bytes, policy.recording->max_bytes);
  all.files = std::max(all.files, policy.recording->files);
  wish->policies.push_back(policy.name);
  wish->request += policy.name + "/" + policy.uid + "/" + policy.recording->name + ";";
}

/// "policy a", "policies a and b", "policies a and 7 more".
std::string name_policies(const std::vector<std::string>& names) {
  if (names.size() == 1) return "policy " + names[0];
  if (names.size() == 2) return fmt::format("policies {} and {}", names[0], names[1]);
  return fmt::format("policies {} and {} more", names[0], names.size() - 1);
}

}  // namespace

bool FunctionSet::contains(std::uint16_t function_id) const {
  if (function_id < kNcclIds) return (nccl >> function_id & 1) != 0;
  return cuda;
}

FunctionSet select_nccl_functions(const std::vector<std::string>& globs) {
  FunctionSet set;
  for (const model::ApiFunction& function : model::api_functions()) {
    if (function.source != API_SOURCE_NCCL) continue;
    if (gives_ranks(function.family) || any_glob_matches(globs, function.symbol) ||
        any_glob_matches(globs, function.operation))
      set.nccl |= std::uint64_t{1} << function.id;
  }
  return set;
}

PolicySet::PolicySet(std::vector<TracePolicy> policies, const Labels& node_labels,
                     AgentDefaults defaults)
    : defaults_(defaults) {
  if (defaults.nccl) allowed_ = select_nccl_functions({"*"});
  allowed_.cuda = defaults.cuda;
  entries_.reserve(policies.size());
  for (TracePolicy& policy : policies) {
    Entry entry{std::move(policy), false, {}};
    entry.selects_node = entry.policy.node_selector.matches(node_labels);
    if (entry.policy.nccl_enabled)
      entry.functions = select_nccl_functions(entry.policy.nccl_functions);
    entry.functions.cuda = entry.policy.cuda_memcpy_enabled;
    entries_.push_back(std::move(entry));
  }
  std::sort(entries_.begin(), entries_.end(),
            [](const Entry& a, const Entry& b) { return a.policy.name < b.policy.name; });
}

Decision PolicySet::decide(const Target& target) const {
  // The API server puts this label on every namespace. It must hold too while the namespace itself
  // is not known yet.
  Labels named_labels;
  const Labels* namespace_labels = &target.namespace_labels;
  if (!namespace_labels->contains(kNamespaceNameLabel)) {
    named_labels = target.namespace_labels;
    named_labels.emplace(kNamespaceNameLabel, target.k8s_namespace);
    namespace_labels = &named_labels;
  }
  std::vector<const Entry*> matching;
  std::vector<std::string> excluding;
  for (const Entry& entry : entries_) {
    if (!entry.selects_node || !entry.policy.pod_selector.matches(target.pod_labels) ||
        !entry.policy.namespace_selector.matches(*namespace_labels))
      continue;
    if (selects_container(entry.policy, target.container)) matching.push_back(&entry);
    else excluding.push_back(entry.policy.name);
  }
  if (!matching.empty()) return merge(matching);
  Decision decision = decide_unmatched();
  if (!defaults_.trace_unmatched && !excluding.empty())
    decision.reason = "container excluded by " + name_policies(excluding);
  return decision;
}

Decision PolicySet::decide_unmatched() const {
  Decision decision;
  if (!defaults_.trace_unmatched) {
    decision.reason = "no policy matches and default_action is ignore";
    return decision;
  }
  decision.traced = !allowed_.empty();
  decision.functions = allowed_;
  decision.slow_call_ns = decision.traced ? defaults_.slow_call_ns : 0;
  if (!decision.traced) decision.reason = "probes are off in the agent's settings";
  return decision;
}

Decision PolicySet::merge(const std::vector<const Entry*>& matching) const {
  Decision decision;
  FunctionSet wanted;
  std::optional<std::uint64_t> slow_call_ns;  // 0: off, which is longer than any time
  for (const Entry* entry : matching) {
    const TracePolicy& policy = entry->policy;
    decision.policies.push_back(policy.name);
    wanted = wanted | entry->functions;
    add_all(decision.pod_labels, policy.pod_labels);
    add_all(decision.pod_annotations, policy.pod_annotations);
    if (policy.slow_call_threshold) {
      const auto ns = static_cast<std::uint64_t>(policy.slow_call_threshold->count());
      if (slow_call_ns.value_or(0) == 0) slow_call_ns = ns;
      else if (ns != 0) slow_call_ns = std::min(*slow_call_ns, ns);
    }
    add_recording(policy, decision.recording);
    const std::uint32_t limit = policy.max_series.value_or(0);
    if (decision.max_series == 0) decision.max_series = limit;
    else if (limit != 0) decision.max_series = std::min(decision.max_series, limit);
  }
  sort_unique(decision.pod_labels);
  sort_unique(decision.pod_annotations);
  decision.functions = wanted & allowed_;
  decision.traced = !decision.functions.empty();
  if (!decision.traced) decision.recording.reset();
  decision.slow_call_ns = decision.traced ? slow_call_ns.value_or(defaults_.slow_call_ns) : 0;
  if (wanted.empty()) decision.reason = "probes are off in " + name_policies(decision.policies);
  else if (!decision.traced) decision.reason = "probes are off in the agent's settings";
  return decision;
}

}  // namespace ingero::policy
