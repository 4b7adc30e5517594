// SPDX-License-Identifier: Apache-2.0
#include "attribute/cgroup_path.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <vector>

namespace ingero::attribute {
namespace {

constexpr std::size_t kIdLength = 64;
constexpr std::size_t kMaxNameLength = 76;  // containerd's own limit of an identifier

bool is_hex(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool is_container_id(std::string_view text) { return text.size() == kIdLength && is_hex(text); }

/// An identifier as containerd allows it: letters and digits, separated by single . _ or -.
bool is_container_name(std::string_view text) {
  const auto is_word = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  };
  if (text.empty() || text.size() > kMaxNameLength) return false;
  if (!is_word(text.front()) || !is_word(text.back())) return false;
  return std::all_of(text.begin(), text.end(),
                     [&](char c) { return is_word(c) || c == '.' || c == '_' || c == '-'; });
}

/// "pod<uid>" without the "pod": a UUID (its dashes are underscores in systemd's names), or the 32
/// hex digits of a static pod. Empty when it is neither.
std::string read_pod_uid(std::string_view text) {
  std::string uid(text);
  std::replace(uid.begin(), uid.end(), '_', '-');
  if (uid.size() == 32 && is_hex(uid)) return uid;
  if (uid.size() != 36) return "";
  for (std::size_t i = 0; i < uid.size(); ++i) {
    const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
    if (dash ? uid[i] != '-' : !is_hex(std::string_view(uid).substr(i, 1))) return "";
  }
  return uid;
}

struct Pod {
  std::string uid;
  std::string qos;
};

/// kubepods-burstable-pod<uid>.slice, also behind a prefix (kubelet-kubepods-... in kind).
std::optional<Pod> read_pod_slice(std::string_view name) {
  if (!name.ends_with(".slice")) return std::nullopt;
  name.remove_suffix(6);
  const std::size_t at = name.rfind("-pod");
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view parent = name.substr(0, at);
  Pod pod{read_pod_uid(name.substr(at + 4)), ""};
  if (pod.uid.empty() || parent.find("kubepods") == std::string_view::npos) return std::nullopt;
  if (parent.ends_with("kubepods")) pod.qos = "guaranteed";
  if (parent.ends_with("-burstable")) pod.qos = "burstable";
  if (parent.ends_with("-besteffort")) pod.qos = "besteffort";
  return pod;
}

/// The pod that a component stands for; `above` are the components before it.
std::optional<Pod> read_pod(std::string_view name, std::span<const std::string_view> above) {
  // containerd that was handed a systemd path under the cgroupfs driver:
  // <slice>:cri-containerd:<id>
  if (const std::size_t colon = name.find(':'); colon != std::string_view::npos) {
    return read_pod_slice(name.substr(0, colon));
  }
  if (!name.starts_with("pod")) return read_pod_slice(name);
  Pod pod{read_pod_uid(name.substr(3)), ""};
  if (pod.uid.empty()) return std::nullopt;
  const std::string_view parent = above.empty() ? std::string_view() : above.back();
  if (parent == "burstable" || parent == "besteffort") pod.qos = parent;
  if (parent.ends_with("kubepods")) pod.qos = "guaranteed";
  return pod;
}

struct Container {
  std::string_view id;
  std::string_view runtime;
};

struct Prefix {
  std::string_view text;
  std::string_view runtime;
};

// What runtimes put before the id. conmon's cgroups ("crio-conmon-<id>") do not match: behind
// "crio-" follows no id. They hold the monitor, not the container.
constexpr std::array kPrefixes{
    Prefix{"cri-containerd-", "containerd"},
    Prefix{"crio-", "cri-o"},
    Prefix{"docker-", "docker"},
    Prefix{"libpod-", "podman"},
    Prefix{"nerdctl-", "containerd"},
};

std::optional<Container> read_prefixed(std::string_view name) {
  for (const Prefix& prefix : kPrefixes) {
    if (!name.starts_with(prefix.text)) continue;
    const std::string_view id = name.substr(prefix.text.size());
    if (is_container_id(id)) return Container{id, prefix.runtime};
  }
  return std::nullopt;
}

/// The container that a component stands for; `above` are the components before it.
std::optional<Container> read_container(std::string_view name,
                                        std::span<const std::string_view> above) {
  if (name.ends_with(".scope")) return read_prefixed(name.substr(0, name.size() - 6));
  if (const std::size_t colon = name.rfind(':'); colon != std::string_view::npos) {
    if (!is_container_id(name.substr(colon + 1))) return std::nullopt;
    const bool containerd = name.substr(0, colon).ends_with(":cri-containerd");
    return Container{name.substr(colon + 1), containerd ? "containerd" : ""};
  }
  if (const auto prefixed = read_prefixed(name)) return prefixed;  // cgroupfs driver: crio-<id>
  const std::string_view parent = above.empty() ? std::string_view() : above.back();
  // containerd's own layout is /<namespace>/<container>, at the top of the tree only.
  if (above.size() == 1 && (parent == "default" || parent == "k8s.io") && is_container_name(name)) {
    return Container{name, "containerd"};
  }
  if (!is_container_id(name)) return std::nullopt;
  // podman's pods are 64 hex digits too, and no containers.
  if (parent == "libpod_parent") return std::nullopt;
  return Container{name, parent == "docker" ? "docker" : ""};
}

std::vector<std::string_view> components(std::string_view path) {
  std::vector<std::string_view> parts;
  while (!path.empty()) {
    const std::size_t end = path.find('/');
    if (end != 0) parts.push_back(path.substr(0, end));
    if (end == std::string_view::npos) break;
    path.remove_prefix(end + 1);
  }
  return parts;
}

}  // namespace

ContainerIdentity parse_cgroup_path(std::string_view path) {
  ContainerIdentity identity;
  const std::vector<std::string_view> parts = components(path);
  // From the inside out: the first container is the one, and a pod met before it means "in no
  // container".
  for (std::size_t i = parts.size(); i-- > 0;) {
    const std::span above(parts.data(), i);
    if (identity.container_id.empty()) {
      if (const auto container = read_container(parts[i], above)) {
        identity.container_id = container->id;
        identity.runtime = container->runtime;
      }
    }
    if (auto pod = read_pod(parts[i], above)) {
      identity.pod_uid = std::move(pod->uid);
      identity.qos = std::move(pod->qos);
      break;
    }
  }
  return identity;
}

std::vector<PathPod> parse_path_pods(std::string_view path) {
  std::vector<PathPod> pods;
  const std::vector<std::string_view> parts = components(path);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::span above(parts.data(), i);
    // One component may be both: <slice of the pod>:cri-containerd:<id>.
    if (auto pod = read_pod(parts[i], above)) pods.push_back({std::move(pod->uid), {}});
    const auto container = read_container(parts[i], above);
    if (container && !pods.empty()) pods.back().container_ids.emplace_back(container->id);
  }
  return pods;
}

std::vector<std::string> parse_path_containers(std::string_view path) {
  std::vector<std::string> ids;
  const std::vector<std::string_view> parts = components(path);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (const auto container = read_container(parts[i], std::span(parts.data(), i)))
      ids.emplace_back(container->id);
  }
  return ids;
}

}  // namespace ingero::attribute
