// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <ostream>
#include <random>
#include <string>

#include "attribute/cgroup_path.h"

namespace ingero::attribute {

void PrintTo(const ContainerIdentity& id, std::ostream* out) {
  *out << "{" << id.container_id << ", " << id.pod_uid << ", " << id.runtime << ", " << id.qos
       << "}";
}

namespace {

// In a path, $A and $B stand for container ids and $P and $U for a pod's UID with - and with _.
const std::string kA = "3f1e9d0c5b7a4826f0e1d2c3b4a5968778695a4b3c2d1e0f9a8b7c6d5e4f3a2b";
const std::string kB = "b0c1d2e3f4a5968778695a4b3c2d1e0f3f1e9d0c5b7a48269a8b7c6d5e4f3a2b";
const std::string kPod = "5d4a1f0e-92c3-4b7e-8a6d-0f1e2d3c4b5a";

std::string replace_all(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

std::string expand(std::string text) {
  text = replace_all(std::move(text), "$A", kA);
  text = replace_all(std::move(text), "$B", kB);
  text = replace_all(std::move(text), "$P", kPod);
  return replace_all(std::move(text), "$U", replace_all(kPod, "-", "_"));
}

struct Example {
  const char* name;
  const char* path;
  const char* container_id;
  const char* pod_uid;
  const char* runtime;
  const char* qos;
};

class CgroupPath : public testing::TestWithParam<Example> {};

TEST_P(CgroupPath, NamesContainerPodRuntimeAndQos) {
  const Example& example = GetParam();
  const ContainerIdentity expected{expand(example.container_id), expand(example.pod_uid),
                                   example.runtime, example.qos};
  EXPECT_EQ(parse_cgroup_path(expand(example.path)), expected) << expand(example.path);
}

constexpr const char* kStatic = "0123456789abcdef0123456789abcdef";

// clang-format off
INSTANTIATE_TEST_SUITE_P(Kubernetes, CgroupPath, testing::Values(
  Example{"cgroupfs_burstable", "/kubepods/burstable/pod$P/$A", "$A", "$P", "", "burstable"},
  Example{"cgroupfs_besteffort", "/kubepods/besteffort/pod$P/$A", "$A", "$P", "", "besteffort"},
  Example{"cgroupfs_guaranteed", "/kubepods/pod$P/$A", "$A", "$P", "", "guaranteed"},
  Example{"cgroupfs_crio", "/kubepods/burstable/pod$P/crio-$A", "$A", "$P", "cri-o", "burstable"},
  Example{"cgroupfs_crio_conmon", "/kubepods/burstable/pod$P/crio-conmon-$A", "", "$P", "", "burstable"},
  Example{"systemd_burstable", "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod$U.slice/cri-containerd-$A.scope", "$A", "$P", "containerd", "burstable"},
  Example{"systemd_besteffort", "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod$U.slice/cri-containerd-$A.scope", "$A", "$P", "containerd", "besteffort"},
  Example{"systemd_guaranteed", "/kubepods.slice/kubepods-pod$U.slice/cri-containerd-$A.scope", "$A", "$P", "containerd", "guaranteed"},
  Example{"systemd_crio", "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod$U.slice/crio-$A.scope", "$A", "$P", "cri-o", "burstable"},
  Example{"systemd_crio_child", "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod$U.slice/crio-$A.scope/container", "$A", "$P", "cri-o", "burstable"},
  Example{"systemd_crio_conmon", "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod$U.slice/crio-conmon-$A.scope", "", "$P", "", "burstable"},
  Example{"systemd_cri_dockerd", "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod$U.slice/docker-$A.scope", "$A", "$P", "docker", "burstable"},
  Example{"systemd_path_under_cgroupfs_driver", "/system.slice/containerd.service/kubepods-burstable-pod$U.slice:cri-containerd:$A", "$A", "$P", "containerd", "burstable"},
  Example{"static_pod", "/kubepods/burstable/pod0123456789abcdef0123456789abcdef/$A", "$A", kStatic, "", "burstable"},
  Example{"static_pod_systemd", "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0123456789abcdef0123456789abcdef.slice/cri-containerd-$A.scope", "$A", kStatic, "containerd", "burstable"},
  Example{"pod_itself", "/kubepods/burstable/pod$P", "", "$P", "", "burstable"},
  Example{"pod_slice_itself", "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod$U.slice", "", "$P", "", "burstable"},
  Example{"child_of_a_container", "/kubepods/burstable/pod$P/$A/init.scope", "$A", "$P", "", "burstable"},
  Example{"deep_child_of_a_container", "/kubepods.slice/kubepods-pod$U.slice/cri-containerd-$A.scope/system.slice/sshd.service", "$A", "$P", "containerd", "guaranteed"},
  Example{"last_three_names_cgroupfs", "burstable/pod$P/$A", "$A", "$P", "", "burstable"},
  Example{"last_three_names_systemd", "kubepods-burstable.slice/kubepods-burstable-pod$U.slice/cri-containerd-$A.scope", "$A", "$P", "containerd", "burstable"},
  Example{"qos_slice_itself", "/kubepods.slice/kubepods-burstable.slice", "", "", "", ""}
), [](const auto& test) { return std::string(test.param.name); });

INSTANTIATE_TEST_SUITE_P(Nested, CgroupPath, testing::Values(
  Example{"kind_cgroupfs", "/docker/$B/kubelet/kubepods/burstable/pod$P/$A", "$A", "$P", "", "burstable"},
  Example{"kind_systemd", "/docker/$B/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod$U.slice/cri-containerd-$A.scope", "$A", "$P", "containerd", "burstable"},
  Example{"kind_systemd_guaranteed", "/system.slice/docker-$B.scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod$U.slice/cri-containerd-$A.scope", "$A", "$P", "containerd", "guaranteed"},
  Example{"kind_pod_without_container", "/docker/$B/kubelet/kubepods/burstable/pod$P", "", "$P", "", "burstable"},
  Example{"kind_node_service", "/docker/$B/system.slice/containerd.service", "$B", "", "docker", ""},
  Example{"kind_node_init", "/docker/$B/init.scope", "$B", "", "docker", ""},
  Example{"docker_in_a_pod", "/kubepods/burstable/pod$P/$B/docker/$A", "$A", "$P", "docker", "burstable"},
  Example{"minikube", "/docker/$B/kubepods/besteffort/pod$P/$A", "$A", "$P", "", "besteffort"}
), [](const auto& test) { return std::string(test.param.name); });

INSTANTIATE_TEST_SUITE_P(WithoutKubernetes, CgroupPath, testing::Values(
  Example{"docker_cgroupfs", "/docker/$A", "$A", "", "docker", ""},
  Example{"docker_systemd", "/system.slice/docker-$A.scope", "$A", "", "docker", ""},
  Example{"docker_rootless", "/user.slice/user-1000.slice/user@1000.service/user.slice/docker-$A.scope", "$A", "", "docker", ""},
  Example{"docker_with_own_parent", "/actions_job/$A", "$A", "", "", ""},
  Example{"containerd_name", "/default/redis", "redis", "", "containerd", ""},
  Example{"containerd_id", "/default/$A", "$A", "", "containerd", ""},
  Example{"containerd_k8s_io", "/k8s.io/$A", "$A", "", "containerd", ""},
  Example{"containerd_other_namespace", "/example/$A", "$A", "", "", ""},
  Example{"containerd_child", "/default/redis/worker", "redis", "", "containerd", ""},
  Example{"nerdctl_systemd", "/system.slice/nerdctl-$A.scope", "$A", "", "containerd", ""},
  Example{"podman", "/machine.slice/libpod-$A.scope/container", "$A", "", "podman", ""},
  Example{"podman_rootless", "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-$A.scope", "$A", "", "podman", ""},
  Example{"podman_in_its_pod", "/machine.slice/machine-libpod_pod_$B.slice/libpod-$A.scope", "$A", "", "podman", ""},
  Example{"podman_cgroupfs", "/libpod_parent/$B/libpod-$A", "$A", "", "podman", ""},
  Example{"podman_pod_itself", "/libpod_parent/$B", "", "", "", ""},
  Example{"podman_conmon", "/machine.slice/libpod-conmon-$A.scope", "", "", "", ""}
), [](const auto& test) { return std::string(test.param.name); });

INSTANTIATE_TEST_SUITE_P(NoContainer, CgroupPath, testing::Values(
  Example{"root", "/", "", "", "", ""},
  Example{"empty", "", "", "", "", ""},
  Example{"service", "/system.slice/ssh.service", "", "", "", ""},
  Example{"session", "/user.slice/user-1000.slice/session-3.scope", "", "", "", ""},
  Example{"default_deep_in_the_tree", "/system.slice/default/redis", "", "", "", ""},
  Example{"scope_without_an_id", "/system.slice/docker-.scope", "", "", "", ""},
  Example{"scope_with_a_short_id", "/system.slice/docker-abc123.scope", "", "", "", ""},
  Example{"id_of_63_digits", "/docker/3f1e9d0c5b7a4826f0e1d2c3b4a5968778695a4b3c2d1e0f9a8b7c6d5e4f3a2", "", "", "", ""},
  Example{"id_in_capitals", "/docker/3F1E9D0C5B7A4826F0E1D2C3B4A5968778695A4B3C2D1E0F9A8B7C6D5E4F3A2B", "", "", "", ""},
  Example{"id_with_a_newline", "/docker/3f1e9d0c5b7a4826f0e1d2c3b4a5968778695a4b3c2d1e0f9a8b7c6d5e4f3a2\n", "", "", "", ""},
  Example{"name_with_a_newline", "/default/re\ndis", "", "", "", ""},
  Example{"name_with_an_escape", "/default/\x1b[2J", "", "", "", ""},
  Example{"pod_of_no_uid", "/kubepods/burstable/podinfo/$A", "$A", "", "", ""},
  Example{"pod_with_a_dash_too_few", "/kubepods/pod5d4a1f0e092c3-4b7e-8a6d-0f1e2d3c4b5a", "", "", "", ""},
  Example{"slice_that_is_not_kubepods", "/machine.slice/foo-pod$U.slice", "", "", "", ""},
  Example{"only_slashes", "////", "", "", "", ""}
), [](const auto& test) { return std::string(test.param.name); });
// clang-format on

TEST(CgroupPathLimits, ReadsPathsOfAnyLength) {
  const std::string name(4096, 'a');
  EXPECT_EQ(parse_cgroup_path("/default/" + name), ContainerIdentity{});
  EXPECT_EQ(parse_cgroup_path("/" + name + "/docker/" + kA).container_id, kA);
  std::string deep;
  for (int i = 0; i < 2000; ++i) deep += "/a";
  EXPECT_EQ(parse_cgroup_path("/docker/" + kA + deep).container_id, kA);
}

TEST(CgroupPathLimits, GivesOnlyCleanNamesForRandomBytes) {
  std::mt19937 random(7);
  const std::string alphabet = std::string("/-:._adfkpos0123\n\xff", 18) + std::string(1, '\0');
  for (int round = 0; round < 20'000; ++round) {
    std::string path = round % 2 == 0 ? "/default/" : "";
    for (std::size_t i = random() % 40; i > 0; --i) path += alphabet[random() % alphabet.size()];
    const ContainerIdentity id = parse_cgroup_path(path);
    for (const char c : id.container_id) {
      ASSERT_TRUE(std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-')
          << path;
    }
  }
}

TEST(PathPods, AreInOrderFromTheOutsideIn) {
  const std::string forged =
      expand("/kubepods/burstable/pod$P/$B/$A/kubepods/pod0123456789abcdef0123456789abcdef/$A");
  const std::vector<PathPod> expected{{kPod, {kB, kA}}, {kStatic, {kA}}};
  EXPECT_EQ(parse_path_pods(forged), expected);
  EXPECT_EQ(
      parse_path_pods(expand("/system.slice/kubepods-burstable-pod$U.slice:cri-containerd:$A")),
      (std::vector<PathPod>{{kPod, {kA}}}));
  EXPECT_TRUE(parse_path_pods(expand("/docker/$A")).empty());
  EXPECT_EQ(parse_path_containers(expand("/docker/$B/x/docker/$A")),
            (std::vector<std::string>{kB, kA}));
}

}  // namespace
}  // namespace ingero::attribute
