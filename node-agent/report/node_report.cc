// SPDX-License-Identifier: Apache-2.0
#include "report/node_report.h"

#include <algorithm>
#include <cctype>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "base/timestamp.h"
#include "report/status_text.h"

namespace ingero::report {

namespace {

using nlohmann::json;

constexpr std::size_t kMaxLosses = 64;
constexpr std::size_t kMaxPolicies = 512;
constexpr std::size_t kMaxUntraced = 64;
constexpr std::size_t kMaxRecordings = 32;
constexpr std::size_t kMaxRecordingPolicies = 16;
constexpr std::size_t kMaxWordBytes = 128;
constexpr std::size_t kMaxPathBytes = 2048;
constexpr std::size_t kMaxShortBytes = 32;
constexpr std::size_t kMaxVersionBytes = 64;
constexpr std::size_t kMaxLabelBytes = 63;  // of names of namespaces and containers

std::int64_t int32(std::uint64_t value) {
  return static_cast<std::int64_t>(std::min<std::uint64_t>(value, kMaxInt32));
}

std::int64_t int64(std::uint64_t value) {
  return static_cast<std::int64_t>(std::min<std::uint64_t>(
      value, static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())));
}

/// The API server refuses a list that has a key twice.
json list_losses(const std::vector<Loss>& losses) {
  std::map<std::string, std::uint64_t> by_reason;
  for (const Loss& loss : losses) {
    if (loss.count != 0 && !loss.reason.empty())
      by_reason[clean(loss.reason, kMaxWordBytes)] += loss.count;
  }
  json out = json::array();
  for (const auto& [reason, count] : by_reason) {
    if (out.size() == kMaxLosses) break;
    out.push_back({{"reason", reason}, {"count", int64(count)}});
  }
  return out;
}

json list_policies(const std::vector<PolicyOnNode>& policies) {
  std::map<std::string, json> by_name;
  for (const PolicyOnNode& policy : policies) {
    if (policy.name.empty()) continue;
    by_name.insert_or_assign(
        clean(policy.name, kMaxNameBytes),
        json{{"observedGeneration", std::max<std::int64_t>(policy.observed_generation, 0)},
             {"pods", int32(policy.pods)},
             {"processes", int32(policy.processes)},
             {"ready", policy.ready},
             {"reason", clean(policy.reason, kMaxWordBytes)},
             {"message", clean(policy.message, kMaxMessageBytes)}});
  }
  json out = json::array();
  for (auto& [name, policy] : by_name) {
    if (out.size() == kMaxPolicies) break;
    policy["name"] = name;
    out.push_back(std::move(policy));
  }
  return out;
}

json list_untraced(const std::vector<UntracedContainer>& untraced) {
  json out = json::array();
  for (const UntracedContainer& item : untraced) {
    if (out.size() == kMaxUntraced) break;
    if (item.pod.empty() || item.reason.empty()) continue;
    out.push_back({{"namespace", clean(item.k8s_namespace, kMaxLabelBytes)},
                   {"pod", clean(item.pod, kMaxNameBytes)},
                   {"container", clean(item.container, kMaxLabelBytes)},
                   {"reason", clean(item.reason, kMaxWordBytes)},
                   {"message", clean(item.message, kMaxMessageBytes)},
                   {"policy", clean(item.policy, kMaxNameBytes)}});
  }
  return out;
}

/// Those that go on, then those that are asked for and refused, then those that have ended.
int rank_of(const RecordedPod& recording) {
  if (recording.state == kRecordingState) return 0;
  return recording.state == kRefusedState ? 1 : 2;
}

void add_time(const char* key, std::int64_t unix_s, json& object) {
  constexpr std::int64_t kSecond = 1'000'000'000;
  if (unix_s > 0 && unix_s < std::numeric_limits<std::int64_t>::max() / kSecond)
    object[key] = format_timestamp(static_cast<std::uint64_t>(unix_s * kSecond));
}

json recording_row(const RecordedPod& recording) {
  json policies = json::array();
  for (const std::string& policy : recording.policies) {
    if (policies.size() == kMaxRecordingPolicies) break;
    policies.push_back(clean(policy, kMaxNameBytes));
  }
  json row = {{"namespace", clean(recording.k8s_namespace, kMaxLabelBytes)},
              {"pod", clean(recording.pod, kMaxNameBytes)},
              {"policies", std::move(policies)},
              {"state", recording.state},
              {"message", clean(recording.message, kMaxMessageBytes)},
              {"file", clean(recording.file, kMaxPathBytes)},
              {"files", int32(recording.files)},
              {"bytes", int64(recording.bytes)},
              {"calls", int64(recording.calls)},
              {"lost", int64(recording.lost)}};
  add_time("startedAt", recording.started_unix_s, row);
  add_time("endsAt", recording.ends_unix_s, row);
  return row;
}

json list_recordings(std::vector<RecordedPod> recordings) {
  std::erase_if(recordings, [](const RecordedPod& recording) { return recording.pod.empty(); });
  std::sort(recordings.begin(), recordings.end(), [](const RecordedPod& a, const RecordedPod& b) {
    return std::tuple(rank_of(a), -a.started_unix_s, std::tie(a.k8s_namespace, a.pod)) <
           std::tuple(rank_of(b), -b.started_unix_s, std::tie(b.k8s_namespace, b.pod));
  });
  json out = json::array();
  for (const RecordedPod& recording : recordings) {
    if (out.size() == kMaxRecordings) break;
    out.push_back(recording_row(recording));
  }
  return out;
}

/// A recording without what changes while it goes on, and while it is refused: the room that is left.
void drop_counts(json& recording) {
  const std::string state = text_at(recording, "state", kMaxShortBytes);
  if (state == kRecordingState) {
    for (const char* key : {"file", "files", "bytes", "calls", "lost"}) recording.erase(key);
  } else if (state == kRefusedState) {
    recording["message"] = without_numbers(text_at(recording, "message", kMaxMessageBytes));
  }
}

}  // namespace

json build_node_status(const NodeReport& report, const json& before, std::uint64_t now_unix_ns) {
  std::uint64_t lost = 0;
  for (const Loss& loss : report.losses) lost += loss.count;
  const auto recording =
      std::count_if(report.recordings.begin(), report.recordings.end(),
                    [](const RecordedPod& pod) { return pod.state == kRecordingState; });
  return {
      {"observedTime", format_timestamp(now_unix_ns)},
      {"agentVersion", clean(report.agent_version, kMaxWordBytes)},
      {"agentPod", clean(report.agent_pod, kMaxNameBytes)},
      {"kernel", clean(report.kernel, kMaxWordBytes)},
      {"architecture", clean(report.architecture, kMaxShortBytes)},
      {"method", clean(report.method, kMaxShortBytes)},
      {"cgroupHierarchy", clean(report.cgroup_hierarchy, kMaxShortBytes)},
      {"probes", int32(report.probes)},
      {"files", int32(report.files)},
      {"pods", int32(report.pods)},
      {"processes", int32(report.processes)},
      {"series", int64(report.series)},
      {"calls", int64(report.calls)},
      {"lostEvents", int64(lost)},
      {"losses", list_losses(report.losses)},
      {"configGeneration", clean(report.config_generation, kMaxVersionBytes)},
      {"configHash", clean(report.config_hash, kMaxWordBytes)},
      {"configError", clean(report.config_error, kMaxMessageBytes)},
      {"policies", list_policies(report.policies)},
      {"untraced", list_untraced(report.untraced)},
      {"recording", int32(static_cast<std::uint64_t>(recording))},
      {"recordings", list_recordings(report.recordings)},
      {"conditions", make_ready_conditions(report.ready, before, now_unix_ns)},
  };
}

std::string without_numbers(std::string text) {
  std::erase_if(text, [](unsigned char c) { return std::isdigit(c) != 0 || c == '.'; });
  return text;
}

bool is_same_but_for_counts(const json& before, const json& after) {
  const auto without_counts = [](json status) {
    if (status.is_object()) {
      for (const char* key : {"observedTime", "calls", "series", "lostEvents", "losses"})
        status.erase(key);
    }
    if (status.is_object() && status.contains("recordings")) {
      for (json& recording : status["recordings"])
        if (recording.is_object()) drop_counts(recording);
    }
    return status;
  };
  return without_counts(before) == without_counts(after);
}

}  // namespace ingero::report
