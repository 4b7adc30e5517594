// SPDX-License-Identifier: Apache-2.0
// Which container a cgroup is, by its path, its processes or a walk of the hierarchy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "attribute/container_resolver.h"
#include "temporary_tree.h"

namespace ingero::attribute {
namespace {

namespace fs = std::filesystem;
using model::CgroupId;
using testing::HasSubstr;

const std::string kA = "3f1e9d0c5b7a4826f0e1d2c3b4a5968778695a4b3c2d1e0f9a8b7c6d5e4f3a2b";
const std::string kPod = "5d4a1f0e-92c3-4b7e-8a6d-0f1e2d3c4b5a";
const std::string kB = "b0c1d2e3f4a5968778695a4b3c2d1e0f3f1e9d0c5b7a48269a8b7c6d5e4f3a2b";
using Names = std::vector<std::string_view>;
const std::string kPodName = "pod" + kPod;
const Names kPodNames{kA, kPodName, "burstable"};
const std::string kPodDirectory = "/kubepods/burstable/pod" + kPod;

class ManualClock : public ClockSource {
 public:
  std::uint64_t monotonic_ns() const override { return now_ns; }
  std::uint64_t boottime_ns() const override { return now_ns; }
  std::uint64_t realtime_ns() const override { return now_ns; }
  void advance(std::chrono::nanoseconds time) {
    now_ns += static_cast<std::uint64_t>(time.count());
  }
  std::uint64_t now_ns = 1;
};

/// A resolver on a tree of directories: their inodes are the cgroup ids, as in cgroupfs.
class ContainerResolverTest : public testing::Test {
 protected:
  ContainerResolver make_resolver(ResolverOptions options = {}, const std::string& root = "/",
                                  CgroupHierarchy hierarchy = CgroupHierarchy::v2) {
    fs::create_directories(tree_.path("/cgroup"));
    return ContainerResolver(HostRoots{tree_.path("/proc"), tree_.path("/sys")},
                             CgroupMount(hierarchy, tree_.path("/cgroup"), root), options, clock_);
  }
  CgroupId make_cgroup(const std::string& path) { return tree_.make("/cgroup" + path); }
  void make_process(int pid, const std::string& cgroup_file) {
    tree_.write("/proc/" + std::to_string(pid) + "/cgroup", cgroup_file);
  }

  TemporaryTree tree_;
  ManualClock clock_;
};

TEST_F(ContainerResolverTest, CallsIdOneTheRoot) {
  auto resolver = make_resolver();
  EXPECT_EQ(resolver.resolve(CgroupId::kRoot).value().label, "/");
  EXPECT_EQ(resolver.stats().walks, 0U);
}

TEST_F(ContainerResolverTest, NeverNamesIdZero) {
  auto resolver = make_resolver();
  EXPECT_FALSE(resolver.learn(CgroupId::kUnknown, "/docker/" + kA));
  EXPECT_EQ(resolver.resolve(CgroupId::kUnknown), std::nullopt);
}

TEST_F(ContainerResolverTest, LearnsAContainerFromItsPath) {
  auto resolver = make_resolver();
  ASSERT_TRUE(resolver.learn(CgroupId{77}, kPodDirectory + "/" + kA));
  const auto info = resolver.resolve(CgroupId{77});
  ASSERT_TRUE(info);
  EXPECT_EQ(info->label, kA);
  EXPECT_EQ(info->container_id, kA);
  EXPECT_EQ(info->pod_uid, kPod);
  EXPECT_EQ(info->cgroup_path, kPodDirectory + "/" + kA);
}

TEST_F(ContainerResolverTest, LabelsACgroupThatIsNoContainerWithItsPath) {
  auto resolver = make_resolver();
  ASSERT_TRUE(resolver.learn(CgroupId{77}, "/system.slice/ssh.service"));
  EXPECT_EQ(resolver.resolve(CgroupId{77}).value().label, "/system.slice/ssh.service");
  EXPECT_EQ(resolver.resolve(CgroupId{77}).value().container_id, "");
}

TEST_F(ContainerResolverTest, KeepsHostileNamesOutOfLabels) {
  auto resolver = make_resolver();
  ASSERT_TRUE(resolver.learn(CgroupId{77}, "/evil\x1b[2J\n\xff"));
  EXPECT_EQ(resolver.resolve(CgroupId{77}).value().label, "/evil\\x1b[2J\\x0a\\xff");
  ASSERT_TRUE(resolver.learn(CgroupId{78}, "/" + std::string(4000, 'x')));
  ASSERT_TRUE(resolver.learn(CgroupId{79}, "/" + std::string(3999, 'x')));
  const auto label = resolver.resolve(CgroupId{78}).value().label;
  EXPECT_LE(label.size(), 256U);
  EXPECT_NE(label, resolver.resolve(CgroupId{79}).value().label);
  EXPECT_FALSE(resolver.learn(CgroupId{80}, "/" + std::string(5000, 'x')));
}

TEST_F(ContainerResolverTest, BelievesAProcessWhoseCgroupHasTheInode) {
  auto resolver = make_resolver();
  const CgroupId id = make_cgroup("/docker/" + kA);
  make_process(812, "0::/docker/" + kA + "\n");
  const Status status = resolver.learn_from_process(id, 812);
  ASSERT_TRUE(status) << status.error().message();
  EXPECT_EQ(resolver.snapshot()->find(id)->label, kA);
}

TEST_F(ContainerResolverTest, DoesNotBelieveAProcessThatMovedToAnotherCgroup) {
  auto resolver = make_resolver();
  make_cgroup("/docker/" + kA);
  make_process(812, "0::/docker/" + kA + "\n");
  const Status status = resolver.learn_from_process(CgroupId{999'999'999}, 812);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message(), HasSubstr("by now"));
  EXPECT_EQ(resolver.snapshot()->find(CgroupId{999'999'999}), nullptr);
}

TEST_F(ContainerResolverTest, DoesNotBelieveAProcessWhoseCgroupIsGone) {
  auto resolver = make_resolver();
  make_process(812, "0::/docker/" + kA + " (deleted)\n");
  const Status status = resolver.learn_from_process(CgroupId{77}, 812);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message(), HasSubstr("was removed"));
}

TEST_F(ContainerResolverTest, SaysWhyAProcessThatIsGoneGivesNothing) {
  auto resolver = make_resolver();
  const Status status = resolver.learn_from_process(CgroupId{77}, 813);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ENOENT);
}

TEST_F(ContainerResolverTest, ReadsTheLineOfTheChosenHierarchy) {
  auto resolver = make_resolver({}, "/", CgroupHierarchy::memory_v1);
  const CgroupId id = make_cgroup("/docker/" + kA);
  make_process(812, "9:name=systemd:/wrong\n8:pids:/wrong\n4:hugetlb,memory:/docker/" + kA +
                        "\n3:memoryless:/wrong\n0::/wrong\n");
  ASSERT_TRUE(resolver.learn_from_process(id, 812));
}

TEST_F(ContainerResolverTest, FollowsAMountThatReachesAboveTheNamespace) {
  auto resolver = make_resolver({}, "/../..");
  const CgroupId id = make_cgroup("/docker/" + kA);
  make_process(812, "0::/../../docker/" + kA + "\n");
  ASSERT_TRUE(resolver.learn_from_process(id, 812));
  EXPECT_EQ(resolver.resolve(id).value().cgroup_path, "/docker/" + kA);
}

TEST_F(ContainerResolverTest, FollowsAMountOfASubtree) {
  auto resolver = make_resolver({}, "/docker");
  const CgroupId id = make_cgroup("/" + kA);
  make_process(812, "0::/docker/" + kA + "\n");
  make_process(813, "0::/dockerless/" + kA + "\n");
  EXPECT_FALSE(resolver.learn_from_process(id, 813));
  ASSERT_TRUE(resolver.learn_from_process(id, 812));
  EXPECT_EQ(resolver.resolve(id).value().cgroup_path, "/docker/" + kA);
}

TEST_F(ContainerResolverTest, NeverLeavesTheMountThroughDots) {
  auto resolver = make_resolver();
  const CgroupId outside = tree_.make("/docker/" + kA);
  make_process(812, "0::/../docker/" + kA + "\n");
  const Status status = resolver.learn_from_process(outside, 812);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message(), HasSubstr("mount the host's"));
}

TEST_F(ContainerResolverTest, NamesACgroupThatIsGoneByTheNamesTheKernelRead) {
  auto resolver = make_resolver();
  ASSERT_TRUE(resolver.learn_from_names(CgroupId{77}, kPodNames, false));
  ASSERT_TRUE(resolver.learn_from_names(CgroupId{78}, Names{kA, "docker"}, true));
  ASSERT_TRUE(resolver.learn_from_names(CgroupId{79}, Names{"c", "b", "a"}, false));
  EXPECT_EQ(resolver.resolve(CgroupId{77}).value().container_id, kA);
  EXPECT_EQ(resolver.resolve(CgroupId{77}).value().pod_uid, kPod);
  EXPECT_EQ(resolver.resolve(CgroupId{78}).value().cgroup_path, "/docker/" + kA);
  EXPECT_EQ(resolver.resolve(CgroupId{79}).value().cgroup_path, "a/b/c");
  EXPECT_FALSE(resolver.learn_from_names(CgroupId{80}, Names{}, true));
}

TEST_F(ContainerResolverTest, NamesACgroupThatIsGoneByItsWholePathHoweverDeepItWas) {
  auto resolver = make_resolver();
  const std::vector<std::string_view> names{"e", "d", "c", "b", "a"};
  ASSERT_TRUE(resolver.learn_from_names(CgroupId{77}, names, true));
  EXPECT_EQ(resolver.resolve(CgroupId{77}).value().label, "/a/b/c/d/e");
  EXPECT_THAT(resolver.gone({}), testing::ElementsAre(CgroupId{77}));
  EXPECT_TRUE(resolver.gone(std::vector{CgroupId{77}}).empty()) << "something lives in it";
}

TEST_F(ContainerResolverTest, ACgroupIsGoneWhenItsDirectoryIs) {
  auto resolver = make_resolver();
  const CgroupId id = make_cgroup("/job/a");
  ASSERT_TRUE(resolver.learn_from_names(id, Names{"a", "job"}, true));
  EXPECT_TRUE(resolver.gone({}).empty());
  fs::remove(tree_.path("/cgroup/job/a"));
  EXPECT_THAT(resolver.gone({}), testing::ElementsAre(id));
}

TEST_F(ContainerResolverTest, AContainerThatNamesACgroupAfterAnotherOneIsNotTakenForIt) {
  auto resolver = make_resolver();
  const CgroupId real = make_cgroup("/docker/" + kA);
  const CgroupId forged = make_cgroup("/docker/" + kB + "/" + kA);
  resolver.resolve_missing(std::vector{real, forged});
  EXPECT_EQ(resolver.resolve(real).value().label, kA);
  EXPECT_EQ(resolver.resolve(forged).value().label, kB + "/" + kA);
}

TEST_F(ContainerResolverTest, PrefersAWholePathToNames) {
  auto resolver = make_resolver();
  const std::string path = kPodDirectory + "/" + kA;
  ASSERT_TRUE(resolver.learn_from_names(CgroupId{77}, kPodNames, false));
  ASSERT_TRUE(resolver.learn(CgroupId{77}, path));
  EXPECT_EQ(resolver.resolve(CgroupId{77}).value().cgroup_path, path);
  ASSERT_TRUE(resolver.learn_from_names(CgroupId{77}, kPodNames, false));
  EXPECT_EQ(resolver.resolve(CgroupId{77}).value().cgroup_path, path);
}

TEST_F(ContainerResolverTest, FindsAnUnknownCgroupByWalkingTheHierarchy) {
  auto resolver = make_resolver();
  make_cgroup("/system.slice/ssh.service");
  const CgroupId id = make_cgroup(kPodDirectory + "/" + kA);
  EXPECT_EQ(resolver.resolve(id).value().container_id, kA);
  EXPECT_EQ(resolver.resolve(id).value().cgroup_path, kPodDirectory + "/" + kA);
  EXPECT_EQ(resolver.stats().walks, 1U);
}

TEST_F(ContainerResolverTest, FindsManyUnknownCgroupsInOneWalk) {
  auto resolver = make_resolver();
  std::vector<CgroupId> ids;
  for (int i = 0; i < 50; ++i) ids.push_back(make_cgroup("/job/" + std::to_string(i)));
  resolver.resolve_missing(ids);
  for (const CgroupId id : ids) EXPECT_TRUE(resolver.snapshot()->find(id));
  EXPECT_EQ(resolver.stats().walks, 1U);
}

TEST_F(ContainerResolverTest, WalksAtMostOncePerInterval) {
  auto resolver = make_resolver();
  EXPECT_EQ(resolver.resolve(CgroupId{999'999'999}), std::nullopt);
  const CgroupId late = make_cgroup("/docker/" + kA);
  EXPECT_EQ(resolver.resolve(late), std::nullopt) << "the last walk is less than a second ago";
  EXPECT_EQ(resolver.stats().walks, 1U);
  EXPECT_EQ(resolver.stats().postponed, 1U);
  clock_.advance(std::chrono::seconds(1));
  EXPECT_TRUE(resolver.resolve(late)) << "a miss that was postponed is no negative answer";
  EXPECT_EQ(resolver.stats().walks, 2U);
}

TEST_F(ContainerResolverTest, RemembersAMissForAWhileOnly) {
  auto resolver = make_resolver();
  const CgroupId id{999'999'999};
  EXPECT_EQ(resolver.resolve(id), std::nullopt);
  clock_.advance(std::chrono::seconds(20));
  EXPECT_EQ(resolver.resolve(id), std::nullopt);
  EXPECT_EQ(resolver.stats().walks, 1U);
  clock_.advance(std::chrono::seconds(11));
  EXPECT_EQ(resolver.resolve(id), std::nullopt);
  EXPECT_EQ(resolver.stats().walks, 2U);
  EXPECT_EQ(resolver.stats().unresolved, 2U);
}

TEST_F(ContainerResolverTest, ForgetsAMissWhenItLearnsTheCgroup) {
  auto resolver = make_resolver();
  EXPECT_EQ(resolver.resolve(CgroupId{77'777'777}), std::nullopt);
  ASSERT_TRUE(resolver.learn(CgroupId{77'777'777}, "/docker/" + kA));
  EXPECT_EQ(resolver.resolve(CgroupId{77'777'777}).value().label, kA);
}

TEST_F(ContainerResolverTest, EndsAWalkAtItsLimitsAndCountsIt) {
  for (int i = 0; i < 20; ++i) make_cgroup("/job/" + std::to_string(i));
  ResolverOptions few;
  few.walk.max_directories = 10;
  auto bounded = make_resolver(few);
  EXPECT_EQ(bounded.resolve(CgroupId{999'999'999}), std::nullopt);
  EXPECT_EQ(bounded.stats().truncated_walks, 1U);

  const CgroupId deep = make_cgroup("/a/b/c/d/e");
  ResolverOptions shallow;
  shallow.walk.max_depth = 3;
  auto flat = make_resolver(shallow);
  EXPECT_EQ(flat.resolve(deep), std::nullopt);
  EXPECT_EQ(flat.stats().truncated_walks, 1U);
}

TEST_F(ContainerResolverTest, DoesNotFollowLinksOutOfTheHierarchy) {
  auto resolver = make_resolver();
  const CgroupId outside = tree_.make("/outside/" + kA);
  fs::create_directory_symlink(tree_.path("/outside"), tree_.path("/cgroup/link"));
  EXPECT_EQ(resolver.resolve(outside), std::nullopt);
}

TEST_F(ContainerResolverTest, GivesNoNameWhereTheNamespaceHidesIt) {
  auto resolver = make_resolver();
  EXPECT_EQ(resolver.resolve(tree_.id_of("/cgroup")), std::nullopt);
  EXPECT_FALSE(resolver.learn(CgroupId{77}, "/"));
}

TEST_F(ContainerResolverTest, ForgetsOnlyWhatIsGoneAndUnreferenced) {
  auto resolver = make_resolver();
  const CgroupId alive = make_cgroup("/job/alive");
  const CgroupId gone = make_cgroup("/job/gone");
  const CgroupId gone_but_used = make_cgroup("/job/used");
  resolver.resolve_missing(std::vector{alive, gone, gone_but_used});
  ASSERT_TRUE(resolver.learn_from_names(CgroupId{77}, Names{"c", "b", "a"}, false));
  fs::remove(tree_.path("/cgroup/job/gone"));
  fs::remove(tree_.path("/cgroup/job/used"));

  resolver.retain(std::vector{gone_but_used});
  const auto table = resolver.snapshot();
  EXPECT_TRUE(table->find(alive));
  EXPECT_TRUE(table->find(gone_but_used));
  EXPECT_TRUE(table->find(CgroupId::kRoot));
  EXPECT_FALSE(table->find(gone));
  EXPECT_FALSE(table->find(CgroupId{77}));
  EXPECT_EQ(resolver.stats().forgotten, 2U);
}

/// A process whose first call is under way when somebody looks who has counted, and that ends before the
/// cgroups are looked at, leaves a cgroup that is gone and that nobody has named.
TEST_F(ContainerResolverTest, WhatGoesAfterTheQuestionIsNotForgotten) {
  auto resolver = make_resolver();
  const CgroupId before = make_cgroup("/job/before");
  const CgroupId after = make_cgroup("/job/after");
  resolver.resolve_missing(std::vector{before, after});
  fs::remove(tree_.path("/cgroup/job/before"));
  const auto gone = resolver.gone({});
  const std::vector<CgroupId> counted;  // as read now: it is in its first call
  fs::remove(tree_.path("/cgroup/job/after"));

  resolver.forget(gone, counted);
  EXPECT_TRUE(resolver.snapshot()->find(after));
  EXPECT_FALSE(resolver.snapshot()->find(before));
  resolver.forget(resolver.gone({}), std::vector{after});
  EXPECT_TRUE(resolver.snapshot()->find(after)) << "it has counted";
}

// Trap "leaks": state that is kept per cgroup stays where it was.
TEST_F(ContainerResolverTest, DoesNotGrowWithTenThousandShortCgroups) {
  auto resolver = make_resolver();
  for (std::uint64_t i = 0; i < 10'000; ++i) {
    ASSERT_TRUE(resolver.learn(CgroupId{1'000'000'000 + i}, "/job/" + std::to_string(i)));
    if (i % 1000 == 999) resolver.retain({});
  }
  EXPECT_EQ(resolver.snapshot()->size(), 1U);
}

TEST_F(ContainerResolverTest, RefusesMoreThanItsLimitAndCountsIt) {
  ResolverOptions options;
  options.max_entries = 3;
  auto resolver = make_resolver(options);
  EXPECT_TRUE(resolver.learn(CgroupId{77}, "/a"));
  EXPECT_TRUE(resolver.learn(CgroupId{78}, "/b"));
  const Status status = resolver.learn(CgroupId{79}, "/c");
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message(), HasSubstr("full"));
  EXPECT_TRUE(resolver.learn(CgroupId{78}, "/b2")) << "known ones can still change";
  EXPECT_EQ(resolver.stats().refused, 1U);
}

TEST_F(ContainerResolverTest, ReadersKeepTheirSnapshot) {
  auto resolver = make_resolver();
  ASSERT_TRUE(resolver.learn(CgroupId{77}, "/a"));
  const auto before = resolver.snapshot();
  EXPECT_EQ(before, resolver.snapshot()) << "nothing changed";
  resolver.retain({});
  EXPECT_TRUE(before->find(CgroupId{77}));
  EXPECT_FALSE(resolver.snapshot()->find(CgroupId{77}));
}

TEST_F(ContainerResolverTest, CanBeUsedFromSeveralThreads) {
  auto resolver = make_resolver();
  const CgroupId id = make_cgroup("/docker/" + kA);
  std::atomic<bool> stop{false};
  std::thread reader([&] {
    while (!stop) EXPECT_TRUE(resolver.snapshot()->find(CgroupId::kRoot));
  });
  std::thread walker([&] {
    while (!stop) EXPECT_EQ(resolver.resolve(id).value_or(ContainerInfo{kA}).label, kA);
  });
  for (std::uint64_t i = 0; i < 2000; ++i) {
    ASSERT_TRUE(resolver.learn(CgroupId{1'000'000'000 + i}, "/job/" + std::to_string(i)));
    if (i % 100 == 0) resolver.retain(std::vector{id});
  }
  stop = true;
  reader.join();
  walker.join();
}

}  // namespace
}  // namespace ingero::attribute
