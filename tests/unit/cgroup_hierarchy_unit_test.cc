// SPDX-License-Identifier: Apache-2.0
// Which hierarchy names containers. hybrid_host is recorded from Linux 6.18, the other trees are
// written after such hosts.
#include "attribute/cgroup_hierarchy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "attribute/container_resolver.h"
#include "temporary_tree.h"

namespace ingero::attribute {
namespace {

using model::CgroupId;
using testing::HasSubstr;

HostRoots tree_of(const std::string& name, const std::string& sys = "/sys") {
  return HostRoots{std::string(INGERO_TEST_DATA) + "/cgroup/" + name + "/proc", sys};
}

TEST(CgroupHierarchy, IsV2WhereOnlyV2IsMounted) {
  const auto mount = find_cgroup_hierarchy(tree_of("v2_host"));
  ASSERT_TRUE(mount) << mount.error().message();
  EXPECT_EQ(mount->hierarchy(), CgroupHierarchy::v2);
  EXPECT_EQ(mount->mount_point(), "/sys/fs/cgroup");
  EXPECT_EQ(mount->root(), "/");
}

TEST(CgroupHierarchy, IsMemoryOnAV1Host) {
  const auto mount = find_cgroup_hierarchy(tree_of("v1_host"));
  ASSERT_TRUE(mount) << mount.error().message();
  EXPECT_EQ(mount->hierarchy(), CgroupHierarchy::memory_v1);
  EXPECT_EQ(mount->mount_point(), "/sys/fs/cgroup/memory");
}

TEST(CgroupHierarchy, IsMemoryOnAHybridHostThatHasMemoryOnV1) {
  const auto mount = find_cgroup_hierarchy(tree_of("hybrid_host"));
  ASSERT_TRUE(mount) << mount.error().message();
  EXPECT_EQ(mount->hierarchy(), CgroupHierarchy::memory_v1);
}

TEST(CgroupHierarchy, IsPidsOnAV1HostWhoseKernelHasNoMemoryV1) {
  const auto mount = find_cgroup_hierarchy(tree_of("v1_without_memory"));
  ASSERT_TRUE(mount) << mount.error().message();
  EXPECT_EQ(mount->hierarchy(), CgroupHierarchy::pids_v1);
  EXPECT_EQ(mount->mount_point(), "/sys/fs/cgroup/pids");
}

TEST(CgroupHierarchy, IsV2OnAHybridHostWithoutMemoryV1IfTheTreeIsInUse) {
  const TemporaryTree sys;
  sys.make("/fs/cgroup/unified/system.slice");
  const auto mount = find_cgroup_hierarchy(tree_of("hybrid_without_memory", sys.path("")));
  ASSERT_TRUE(mount) << mount.error().message();
  EXPECT_EQ(mount->hierarchy(), CgroupHierarchy::v2);
  EXPECT_EQ(mount->mount_point(), sys.path("/fs/cgroup/unified"));
}

TEST(CgroupHierarchy, IsPidsOnAHybridHostWhoseV2TreeIsEmpty) {
  const TemporaryTree sys;
  sys.make("/fs/cgroup/unified");
  const auto mount = find_cgroup_hierarchy(tree_of("hybrid_without_memory", sys.path("")));
  ASSERT_TRUE(mount) << mount.error().message();
  EXPECT_EQ(mount->hierarchy(), CgroupHierarchy::pids_v1);
}

TEST(CgroupHierarchy, TakesTheMountThatReachesTheHostsRoot) {
  const auto mount = find_cgroup_hierarchy(tree_of("pod_with_host_tree"));
  ASSERT_TRUE(mount) << mount.error().message();
  EXPECT_EQ(mount->mount_point(), "/host/sys/fs/cgroup");
  EXPECT_EQ(mount->directory_of("/../../../../docker/x"), "/docker/x");
  EXPECT_EQ(mount->path_of_process("/../../../../docker/x"), "/docker/x");
  EXPECT_EQ(mount->directory_of("/../x"), std::nullopt);
  EXPECT_EQ(mount->path_of_process("/../x"), "x");
}

TEST(CgroupHierarchy, CanBeForced) {
  const auto pids = find_cgroup_hierarchy(tree_of("v1_host"), CgroupHierarchy::pids_v1);
  ASSERT_TRUE(pids) << pids.error().message();
  EXPECT_EQ(pids->mount_point(), "/sys/fs/cgroup/pids");
  EXPECT_EQ(pids->reason(), "set by the configuration");
}

TEST(CgroupHierarchy, CannotBeForcedToWhatIsNotMounted) {
  const auto v2 = find_cgroup_hierarchy(tree_of("v1_host"), CgroupHierarchy::v2);
  ASSERT_FALSE(v2);
  EXPECT_THAT(v2.error().message(), HasSubstr("cgroup v2"));
  EXPECT_THAT(v2.error().message(), HasSubstr("set cgroup_hierarchy to auto"));
}

TEST(CgroupHierarchy, SaysWhatToDoWhereNothingIsMounted) {
  const auto mount = find_cgroup_hierarchy(tree_of("nothing_mounted"));
  ASSERT_FALSE(mount);
  EXPECT_THAT(mount.error().message(), HasSubstr("mount the host's /sys/fs/cgroup"));
}

TEST(CgroupHierarchy, SaysWhichFileIsMissing) {
  const auto mount = find_cgroup_hierarchy(tree_of("no_such_tree"));
  ASSERT_FALSE(mount);
  EXPECT_THAT(mount.error().message(), HasSubstr("mountinfo"));
}

TEST(CgroupHierarchy, SkipsLinesThatDoNotParse) {
  const auto mounts = parse_cgroup_mounts(
      "\n-\n - \n1 2 3 - cgroup\n1 2 0:3 / /a\\040b rw - cgroup2 x rw\n1 2 0:3 / /c rw - cgroup2");
  ASSERT_EQ(mounts.size(), 1U);
  EXPECT_EQ(mounts[0].mount_point, "/a b");
  EXPECT_TRUE(parse_proc_cgroups("memory\nmemory\tx\n#memory\t1\nmemory\t1x\n").empty());
}

// On the host that runs the test: the walk, the process and the id meet.
TEST(CgroupHierarchy, FindsTheCgroupOfThisProcess) {
  const auto mount = find_cgroup_hierarchy(HostRoots{});
  if (!mount) GTEST_SKIP() << mount.error().message();
  std::ifstream file("/proc/self/cgroup");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto path = find_process_path(text, mount->hierarchy());
  ASSERT_TRUE(path) << text;
  const auto directory = mount->directory_of(*path);
  if (!directory || *directory == "/") GTEST_SKIP() << "this process is in the root: " << *path;
  struct stat status {};
  ASSERT_EQ(::stat(mount->absolute_path(*directory).c_str(), &status), 0);
  ContainerResolver resolver(HostRoots{}, *mount);
  EXPECT_TRUE(
      resolver.learn_from_process(CgroupId{status.st_ino}, static_cast<unsigned>(getpid())));
  ContainerResolver walking(HostRoots{}, *mount);
  EXPECT_EQ(walking.resolve(CgroupId{status.st_ino}), resolver.resolve(CgroupId{status.st_ino}));
}

}  // namespace
}  // namespace ingero::attribute
