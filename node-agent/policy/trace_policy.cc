// SPDX-License-Identifier: Apache-2.0
#include "policy/trace_policy.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "base/byte_size.h"
#include "base/duration.h"

namespace ingero::policy {

namespace {

constexpr std::size_t kMaxNameBytes = 253;
constexpr std::size_t kMaxGlobs = 64;
constexpr std::size_t kMaxGlobBytes = 128;
constexpr std::size_t kMaxLabels = 64;
constexpr std::size_t kMaxLabelKeyBytes = 317;
constexpr std::size_t kMaxDurationBytes = 64;
constexpr std::chrono::hours kMaxThreshold{24};
constexpr std::int64_t kMaxSeries = 1'000'000;
constexpr std::size_t kMaxSizeBytes = 16;
constexpr std::uint64_t kMinRecording = 10ULL << 20;
constexpr std::uint64_t kMaxRecording = 1ULL << 40;
constexpr std::int64_t kMaxFiles = 64;
constexpr std::size_t kMaxRecordingName = 63;
constexpr std::chrono::hours kMaxRecordingTime{24 * 7};

void read_metadata(const JsonField& metadata, TracePolicy& policy) {
  const JsonField name = metadata.at("name");
  policy.name = name.text(kMaxNameBytes).value_or("");
  if (policy.name.empty()) name.refuse("a name is needed");
  policy.uid = metadata.at("uid").text(kMaxNameBytes).value_or("");
  policy.generation =
      metadata.at("generation").integer(0, std::numeric_limits<std::int64_t>::max()).value_or(0);
  policy.resource_version = metadata.at("resourceVersion").text(kMaxNameBytes).value_or("");
}

std::vector<std::string> read_globs(const JsonField& list) {
  auto globs = list.texts(kMaxGlobs, kMaxGlobBytes);
  for (const std::string& glob : globs) {
    if (glob.empty()) list.refuse("an empty pattern matches nothing", "leave it out, or write *");
  }
  return globs;
}

/// Globs of which none means all.
std::vector<std::string> read_globs_or_all(const JsonField& list) {
  auto globs = read_globs(list);
  if (globs.empty()) globs.emplace_back("*");
  return globs;
}

std::vector<std::string> read_keys(const JsonField& list) {
  auto keys = list.texts(kMaxLabels, kMaxLabelKeyBytes);
  for (const std::string& key : keys) {
    if (key.empty()) list.refuse("a key is empty");
  }
  return keys;
}

std::optional<std::chrono::nanoseconds> read_threshold(const JsonField& field) {
  const auto text = field.text(kMaxDurationBytes);
  if (!text) return std::nullopt;
  const auto threshold = parse_duration(*text);
  if (!threshold) field.refuse("it is no duration", "write it like 50ms, 1.5s or 1m30s");
  else if (*threshold > kMaxThreshold) field.refuse("it is longer than 24h");
  return threshold;
}

void read_recording_size(const JsonField& field, RecordingSpec& recording) {
  const auto text = field.text(kMaxSizeBytes);
  if (!text) return;
  // The units that the CRD takes, as the settings take them too: 1Gi and 1GiB are the same.
  const bool known = std::ranges::any_of(std::array{"Mi", "MiB", "Gi", "GiB"},
                                         [&](const char* unit) { return text->ends_with(unit); });
  const auto bytes = known ? parse_byte_size(*text) : std::nullopt;
  if (!bytes) field.refuse("it is no size", "write it like 512Mi or 2Gi");
  else if (*bytes < kMinRecording || *bytes > kMaxRecording)
    field.refuse("it is out of range", "write a size from 10Mi to 1024Gi");
  else recording.max_bytes = *bytes;
}

std::optional<RecordingSpec> read_recording(const JsonField& field) {
  if (!field.exists()) return std::nullopt;
  RecordingSpec recording;
  recording.name = field.at("name").text(kMaxRecordingName).value_or("");
  const JsonField duration = field.at("duration");
  if (const auto text = duration.text(kMaxDurationBytes)) {
    const auto time = parse_duration(*text);
    if (!time) duration.refuse("it is no duration", "write it like 90s, 10m or 2h");
    else if (*time < std::chrono::seconds(1) || *time > kMaxRecordingTime)
      duration.refuse("it is out of range", "write a duration from 1s to 168h");
    else recording.duration = *time;
  }
  read_recording_size(field.at("maxSize"), recording);
  if (const auto files = field.at("files").integer(1, kMaxFiles))
    recording.files = static_cast<std::uint32_t>(*files);
  return recording;
}

void read_spec(const JsonField& spec, TracePolicy& policy) {
  policy.namespace_selector = read_label_selector(spec.at("namespaceSelector"));
  policy.pod_selector = read_label_selector(spec.at("podSelector"));
  policy.node_selector = read_label_selector(spec.at("nodeSelector"));
  const JsonField containers = spec.at("containers");
  policy.included_containers = read_globs_or_all(containers.at("include"));
  policy.excluded_containers = read_globs(containers.at("exclude"));
  const JsonField nccl = spec.at("probes").at("nccl");
  policy.nccl_enabled = nccl.at("enabled").boolean().value_or(true);
  policy.nccl_functions = read_globs_or_all(nccl.at("functions"));
  policy.cuda_memcpy_enabled =
      spec.at("probes").at("cudaMemcpy").at("enabled").boolean().value_or(true);
  policy.slow_call_threshold = read_threshold(spec.at("slowCallThreshold"));
  policy.pod_labels = read_keys(spec.at("labels").at("podLabels"));
  policy.pod_annotations = read_keys(spec.at("labels").at("podAnnotations"));
  if (const auto limit = spec.at("limits").at("maxSeries").integer(1, kMaxSeries))
    policy.max_series = static_cast<std::uint32_t>(*limit);
  policy.recording = read_recording(spec.at("recording"));
}

}  // namespace

bool has_same_spec(const TracePolicy& a, const TracePolicy& b) {
  TracePolicy same_version = a;
  same_version.resource_version = b.resource_version;
  return same_version == b;
}

Result<TracePolicy> parse_policy(const nlohmann::json& object) {
  std::optional<Error> error;
  TracePolicy policy;
  const JsonField document(object, "", error);
  if (!document.exists()) document.refuse("it is null, not an object");
  read_metadata(document.at("metadata"), policy);
  read_spec(document.at("spec"), policy);
  if (!error) return policy;
  error->operation = policy.name.empty() ? "read policy" : "read policy " + policy.name;
  return fail(std::move(*error));
}

}  // namespace ingero::policy
