// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ingero::attribute {

/// What the path of a cgroup says about the container in it. A field that the path does not tell is
/// empty; nothing is guessed.
struct ContainerIdentity {
  std::string
      container_id;     ///< 64 hex digits; for containerd outside Kubernetes what its user wrote
  std::string pod_uid;  ///< with dashes, or 32 hex digits (static pods), as the API server has it
  std::string runtime;  ///< containerd, cri-o, docker, podman
  std::string qos;      ///< guaranteed, burstable, besteffort

  bool operator==(const ContainerIdentity&) const = default;
};

/// A pod that a path goes through.
struct PathPod {
  std::string uid;
  std::vector<std::string> container_ids;  ///< on the way further in, the outermost first

  bool operator==(const PathPod&) const = default;
};

/// Reads a cgroup path, whole or only its last components. Where containers nest (kind, Docker in a
/// pod), the innermost gives container_id, and pod_uid is the nearest pod around it. A cgroup that
/// a container made inside itself belongs to that container; a cgroup of a pod that is in no
/// container (the pod's own, conmon's) has only pod_uid. Never fails: any text gives some identity,
/// mostly an empty one.
ContainerIdentity parse_cgroup_path(std::string_view path);

/// All pods on a path, the outermost first. Who lives in a container can give cgroups inside it any name,
/// so the outer ones are to be believed first.
std::vector<PathPod> parse_path_pods(std::string_view path);

/// All containers on a path, the outermost first.
std::vector<std::string> parse_path_containers(std::string_view path);

}  // namespace ingero::attribute
