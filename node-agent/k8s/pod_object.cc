// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "base/utf8.h"
#include "k8s/pod_table.h"

namespace ingero::k8s {

namespace {

using nlohmann::json;

constexpr std::size_t kContainerIdLength = 64;
// Annotations of the pod that the API server shows for a static one.
const char kConfigHash[] = "kubernetes.io/config.hash";
const char kConfigMirror[] = "kubernetes.io/config.mirror";
const char kLastApplied[] = "kubectl.kubernetes.io/last-applied-configuration";
constexpr std::size_t kMaxAnnotations = 64;
constexpr std::size_t kMaxAnnotationBytes = 256;

struct StatusList {
  const char* field;
  ContainerKind kind;
};
constexpr std::array<StatusList, 3> kStatusLists{{
    {"containerStatuses", ContainerKind::app},
    {"initContainerStatuses", ContainerKind::init},
    {"ephemeralContainerStatuses", ContainerKind::ephemeral},
}};

/// nullptr: there is no such array.
const json* find_array(const json& object, const char* field) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(field);
  return found != object.end() && found->is_array() ? &*found : nullptr;
}

std::map<std::string, std::string> read_labels(const json& pod) {
  std::map<std::string, std::string> labels;
  static const auto pointer = json::json_pointer("/metadata/labels");
  if (!pod.contains(pointer) || !pod.at(pointer).is_object()) return labels;
  for (const auto& [key, value] : pod.at(pointer).items()) {
    if (value.is_string()) labels.emplace(key, value.get<std::string>());
  }
  return labels;
}

/// Anyone who makes a pod chooses its annotations, and each may be long.
std::map<std::string, std::string> read_annotations(const json& pod) {
  std::map<std::string, std::string> annotations;
  static const auto pointer = json::json_pointer("/metadata/annotations");
  if (!pod.contains(pointer) || !pod.at(pointer).is_object()) return annotations;
  for (const auto& [key, value] : pod.at(pointer).items()) {
    if (annotations.size() == kMaxAnnotations) break;
    if (!value.is_string() || key == kLastApplied) continue;
    annotations.emplace(key, cut_utf8(value.get_ref<const std::string&>(), kMaxAnnotationBytes));
  }
  return annotations;
}

/// Names of the init containers that keep running.
std::vector<std::string> read_sidecar_names(const json& pod) {
  std::vector<std::string> names;
  const auto spec = pod.find("spec");
  const json* containers = spec == pod.end() ? nullptr : find_array(*spec, "initContainers");
  if (containers == nullptr) return names;
  for (const json& container : *containers) {
    if (text_at(container, {"restartPolicy"}) == "Always")
      names.push_back(text_at(container, {"name"}));
  }
  return names;
}

}  // namespace

const char* to_string(ContainerKind kind) {
  switch (kind) {
    case ContainerKind::app: return "app";
    case ContainerKind::init: return "init";
    case ContainerKind::sidecar: return "sidecar";
    case ContainerKind::ephemeral: return "ephemeral";
  }
  return "unknown";
}

std::optional<std::string> parse_container_id(std::string_view text) {
  const auto scheme = text.find("://");
  if (scheme == std::string_view::npos || scheme == 0) return std::nullopt;
  const auto id = text.substr(scheme + 3);
  const bool is_hex = std::all_of(id.begin(), id.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
  });
  if (id.size() != kContainerIdLength || !is_hex) return std::nullopt;
  return std::string(id);
}

std::optional<PodInfo> read_pod(const json& pod) {
  PodInfo info;
  info.k8s_namespace = text_at(pod, {"metadata", "namespace"});
  info.name = text_at(pod, {"metadata", "name"});
  info.uid = text_at(pod, {"metadata", "uid"});
  if (info.k8s_namespace.empty() || info.name.empty() || info.uid.empty()) return std::nullopt;
  info.cgroup_uid = info.uid;
  // Only a mirror pod: anyone may put the other annotation on a pod of their own, which would then
  // claim the calls of a static one.
  if (!text_at(pod, {"metadata", "annotations", kConfigMirror}).empty()) {
    const std::string hash = text_at(pod, {"metadata", "annotations", kConfigHash});
    info.cgroup_uid =
        hash.empty() ? text_at(pod, {"metadata", "annotations", kConfigMirror}) : hash;
  }
  info.phase = text_at(pod, {"status", "phase"});
  info.labels = read_labels(pod);
  info.annotations = read_annotations(pod);
  return info;
}

std::vector<ContainerStatus> read_container_statuses(const json& pod, std::uint64_t& malformed) {
  std::vector<ContainerStatus> containers;
  if (!pod.is_object() || !pod.contains("status")) return containers;
  const std::vector<std::string> sidecars = read_sidecar_names(pod);
  const auto add = [&](const std::string& text, const json& status, ContainerKind kind) {
    if (text.empty()) return;  // not created yet
    auto id = parse_container_id(text);
    if (!id) {
      ++malformed;
      return;
    }
    std::string name = text_at(status, {"name"});
    const bool is_sidecar = kind == ContainerKind::init &&
                            std::find(sidecars.begin(), sidecars.end(), name) != sidecars.end();
    containers.push_back(
        {std::move(*id), std::move(name), is_sidecar ? ContainerKind::sidecar : kind});
  };
  for (const auto& [field, kind] : kStatusLists) {
    const json* statuses = find_array(pod["status"], field);
    if (statuses == nullptr) continue;
    for (const json& status : *statuses) {
      add(text_at(status, {"containerID"}), status, kind);
      add(text_at(status, {"lastState", "terminated", "containerID"}), status, kind);
    }
  }
  return containers;
}

InformerOptions make_pod_informer_options(const std::string& node) {
  InformerOptions options;
  options.path = "/api/v1/pods";
  options.field_selector = "spec.nodeName=" + node;
  // Half of a pod. Only its init containers tell which of them are sidecars.
  options.dropped_fields = {{"spec", {"initContainers"}}};
  return options;
}

InformerHandlers make_pod_handlers(PodTable& table) {
  return InformerHandlers{
      [&table](std::vector<json> pods) { table.replace(pods); },
      [&table](ChangeType type, json pod) { table.apply(type, pod); },
  };
}

}  // namespace ingero::k8s
