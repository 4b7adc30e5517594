// SPDX-License-Identifier: Apache-2.0
// Which calls of which cgroup are shown, under which labels, while pods and policies come and go.
#include "app/workloads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bpf/api_functions.h"

namespace ingero::app {
namespace {

using model::CgroupId;
using namespace std::chrono_literals;

constexpr CgroupId kCgroup{7};
constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr std::uint16_t kAllReduce = 1, kMemcpy = 100;
const std::string kContainerId(64, 'a');

nlohmann::json pod_object(const std::string& name, nlohmann::json labels) {
  return {{"metadata",
           {{"namespace", "research"}, {"name", name}, {"uid", "uid-" + name}, {"labels", labels}}},
          {"status",
           {{"containerStatuses",
             {{{"name", "main"}, {"containerID", "containerd://" + kContainerId}}}}}}};
}

policy::TracePolicy policy_for(const std::string& app) {
  nlohmann::json object = {{"metadata", {{"name", app}}},
                           {"spec",
                            {{"podSelector", {{"matchLabels", {{"app", app}}}}},
                             {"labels", {{"podLabels", {"app", "job-name", "secret"}}}},
                             {"limits", {{"maxSeries", 500}}}}}};
  return policy::parse_policy(object).value();
}

/// A kernel that counts what it is told to: `count()` is a call in that cgroup.
class WorkloadsTest : public ::testing::Test {
 protected:
  void count(std::uint16_t function, std::uint64_t calls = 1) {
    const auto& decided = kernel_.find(kCgroup);
    if (decided != kernel_.end() && !decided->second.functions.contains(function)) return;
    for (auto& row : counted_.calls) {
      if (row.function != function) continue;
      row.totals.calls += calls;
      return;
    }
    counted_.calls.push_back({{10, 1}, kCgroup, function, 0, {}});
    counted_.calls.back().totals.calls = calls;
  }

  void see_container(const std::string& pod_uid) {
    attribute::ContainerInfo info;
    info.label = kContainerId;
    info.container_id = kContainerId;
    info.pod_uid = pod_uid;
    containers_ = attribute::ContainerTable(
        {{kCgroup, std::make_shared<const attribute::ContainerInfo>(info)}});
  }

  void cluster(std::vector<policy::TracePolicy> policies, bool trace_unmatched) {
    auto view = std::make_shared<ClusterView>();
    view->pods = pods_.snapshot();
    view->pods_synced = true;
    view->namespaces = std::make_shared<const std::map<std::string, policy::Labels>>();
    policy::AgentDefaults defaults;
    defaults.trace_unmatched = trace_unmatched;
    view->policies =
        std::make_shared<const policy::PolicySet>(std::move(policies), policy::Labels{}, defaults);
    workloads_.set_cluster(view);
  }

  void no_pods_yet() {
    auto view = std::make_shared<ClusterView>();
    view->pods = std::make_shared<const k8s::PodSnapshot>();
    workloads_.set_cluster(view);
  }

  std::vector<CgroupId> refresh() { return workloads_.refresh(containers_, now_); }

  std::uint64_t shown(std::uint16_t function) {
    model::Snapshot snapshot = counted_;
    workloads_.filter(snapshot, now_);
    std::uint64_t calls = 0;
    for (const auto& row : snapshot.calls)
      if (row.function == function) calls += row.totals.calls;
    return calls;
  }

  std::uint64_t now_ = 100 * kSecond;
  attribute::ContainerTable containers_{{}};
  k8s::PodTable pods_;
  model::Snapshot counted_;
  std::map<CgroupId, policy::Decision> kernel_;
  std::set<CgroupId> streamed_;
  Workloads workloads_{[this] { return counted_; },
                       [this](const auto& changes) {
                         for (const auto& [cgroup, decision, streamed] : changes) {
                           if (streamed) streamed_.insert(cgroup);
                           else streamed_.erase(cgroup);
                           if (decision) kernel_[cgroup] = *decision;
                           else kernel_.erase(cgroup);
                         }
                       }};
};

TEST_F(WorkloadsTest, CallsBeforeTheMetadataAreShownWithItAndNotWithout) {
  see_container("uid-train");
  no_pods_yet();
  refresh();
  count(kMemcpy, 5);
  EXPECT_EQ(shown(kMemcpy), 0u);
  pods_.apply(k8s::ChangeType::added, pod_object("train", {{"app", "train"}, {"job-name", "j"}}));
  cluster({policy_for("train")}, false);
  refresh();
  count(kMemcpy, 2);
  EXPECT_EQ(shown(kMemcpy), 7u);
  const auto workload = workloads_.workload_of(kCgroup);
  EXPECT_EQ(workload.k8s_namespace, "research");
  EXPECT_EQ(workload.pod, "train");
  EXPECT_EQ(workload.container, "main");
  EXPECT_EQ(workload.max_series, 500u);
  EXPECT_THAT(workload.labels, testing::ElementsAre(testing::Pair("label_app", "train"),
                                                    testing::Pair("label_job_name", "j")));
}

TEST_F(WorkloadsTest, OnlyLabelsThatTheSettingsAllowAreShown) {
  see_container("uid-train");
  pods_.apply(k8s::ChangeType::added,
              pod_object("train", {{"app", "train"}, {"job-name", "j"}, {"secret", "s"}}));
  cluster({policy_for("train")}, false);
  Workloads::Settings settings;
  settings.allowed_labels = {"job-*"};
  workloads_.set_settings(settings);
  refresh();
  EXPECT_THAT(workloads_.workload_of(kCgroup).labels,
              testing::ElementsAre(testing::Pair("label_job_name", "j")));
}

TEST_F(WorkloadsTest, OnlyRecordedPodsOfWhichAPolicyAsksForItAreStreamed) {
  see_container("uid-train");
  pods_.apply(k8s::ChangeType::added, pod_object("train", {{"app", "train"}}));
  cluster({policy_for("train")}, false);
  refresh();
  workloads_.set_recorded_pods({"uid-train"});
  EXPECT_TRUE(streamed_.empty()) << "no policy asks for it";
  policy::TracePolicy asks = policy_for("train");
  asks.recording.emplace();
  cluster({asks}, false);
  refresh();
  EXPECT_TRUE(streamed_.contains(kCgroup));
  workloads_.set_recorded_pods({});
  EXPECT_TRUE(streamed_.empty());
  workloads_.set_recorded_pods({"uid-train"});
  EXPECT_TRUE(streamed_.contains(kCgroup));
  EXPECT_TRUE(kernel_[kCgroup].functions.contains(kMemcpy)) << "it counts as before";
}

TEST_F(WorkloadsTest, WhatNoPolicyCoversIsNeverShown) {
  see_container("uid-web");
  no_pods_yet();
  refresh();
  count(kMemcpy, 5);
  pods_.apply(k8s::ChangeType::added, pod_object("web", {{"app", "web"}}));
  cluster({policy_for("train")}, false);
  refresh();
  count(kMemcpy, 5);
  EXPECT_EQ(shown(kMemcpy), 0u);
  EXPECT_THAT(workloads_.containers().at(0).reason, testing::HasSubstr("no policy matches"));
}

TEST_F(WorkloadsTest, ExactlyTheCoveredSpansCount) {
  see_container("uid-train");
  no_pods_yet();
  refresh();
  count(kMemcpy, 3);  // not decided: kept for the case that it counts
  pods_.apply(k8s::ChangeType::added, pod_object("train", {{"app", "train"}}));
  cluster({}, false);
  refresh();
  count(kMemcpy, 100);
  EXPECT_EQ(shown(kMemcpy), 0u) << "nothing covers it";
  cluster({policy_for("train")}, false);
  refresh();
  EXPECT_EQ(shown(kMemcpy), 0u) << "the three were before the policy";
  count(kMemcpy, 4);
  EXPECT_EQ(shown(kMemcpy), 4u);
  cluster({}, false);
  refresh();
  count(kMemcpy, 100);
  EXPECT_EQ(shown(kMemcpy), 4u) << "frozen";
  cluster({policy_for("train")}, false);
  refresh();
  count(kMemcpy, 1);
  EXPECT_EQ(shown(kMemcpy), 5u);
}

TEST_F(WorkloadsTest, FunctionsThatJoinLaterDoNotBringOldCalls) {
  see_container("uid-train");
  no_pods_yet();
  refresh();
  count(kMemcpy, 9);
  count(kAllReduce, 2);
  pods_.apply(k8s::ChangeType::added, pod_object("train", {{"app", "train"}}));
  auto only_nccl = policy_for("train");
  only_nccl.cuda_memcpy_enabled = false;
  cluster({only_nccl}, false);
  refresh();
  EXPECT_EQ(shown(kMemcpy), 0u);
  EXPECT_EQ(shown(kAllReduce), 2u);
  cluster({policy_for("train")}, false);
  refresh();
  count(kMemcpy, 1);
  count(kAllReduce, 1);
  EXPECT_EQ(shown(kMemcpy), 1u);
  EXPECT_EQ(shown(kAllReduce), 3u);
}

TEST_F(WorkloadsTest, SeriesOfAPodGoOneRetentionAfterIt) {
  see_container("uid-train");
  pods_.apply(k8s::ChangeType::added, pod_object("train", {{"app", "train"}}));
  cluster({}, true);
  refresh();
  count(kMemcpy, 5);
  EXPECT_EQ(shown(kMemcpy), 5u);
  pods_.replace({});
  cluster({}, true);
  now_ = system_clock_source().monotonic_ns() + 59 * kSecond;
  EXPECT_TRUE(refresh().empty());
  EXPECT_EQ(shown(kMemcpy), 5u);
  now_ += 3 * kSecond;
  EXPECT_THAT(refresh(), testing::ElementsAre(kCgroup)) << "to be forgotten";
  EXPECT_EQ(shown(kMemcpy), 0u);
}

TEST_F(WorkloadsTest, AnUncoveredPodIsHiddenAfterTheRetention) {
  see_container("uid-train");
  pods_.apply(k8s::ChangeType::added, pod_object("train", {{"app", "train"}}));
  cluster({}, true);
  refresh();
  count(kMemcpy, 5);
  cluster({}, false);
  refresh();
  now_ += 59 * kSecond;
  EXPECT_EQ(shown(kMemcpy), 5u);
  now_ += 2 * kSecond;
  EXPECT_EQ(shown(kMemcpy), 0u);
}

TEST_F(WorkloadsTest, APodThatTheServerNeverTellsIsShownByItsContainersIdAfterAWhile) {
  see_container("uid-lost");
  cluster({}, true);
  refresh();
  count(kMemcpy, 5);
  EXPECT_EQ(shown(kMemcpy), 0u);
  now_ += 11 * kSecond;
  refresh();
  EXPECT_EQ(shown(kMemcpy), 5u);
  EXPECT_EQ(workloads_.workload_of(kCgroup).container, kContainerId);
  model::Snapshot snapshot = counted_;
  workloads_.filter(snapshot, now_);
  EXPECT_EQ(snapshot.unattributed_calls.at("unknown_pod"), 5u);
  pods_.apply(k8s::ChangeType::added, pod_object("lost", {}));
  cluster({}, true);
  refresh();
  EXPECT_EQ(workloads_.workload_of(kCgroup).pod, "lost") << "better late than never";
}

TEST_F(WorkloadsTest, WithoutAClusterEverythingIsShown) {
  see_container("");
  policy::Decision all = policy::PolicySet({}, {}, {}).decide_unmatched();
  workloads_.set_fallback(all);
  refresh();
  count(kMemcpy, 5);
  EXPECT_EQ(shown(kMemcpy), 5u);
  EXPECT_EQ(workloads_.workload_of(kCgroup).container, kContainerId);
}

/// A cgroup outside of pods.
std::shared_ptr<const attribute::ContainerInfo> service(const std::string& path) {
  attribute::ContainerInfo info;
  info.label = path;
  info.cgroup_path = path;
  return std::make_shared<const attribute::ContainerInfo>(info);
}

TEST_F(WorkloadsTest, AnEndedContainerOutsideOfPodsLeavesOneRetentionAfterIt) {
  see_container("");
  workloads_.set_fallback(policy::PolicySet({}, {}, {}).decide_unmatched());
  refresh();
  count(kMemcpy, 5);
  workloads_.set_gone({kCgroup}, now_);
  now_ += 59 * kSecond;
  workloads_.set_gone({kCgroup}, now_);
  EXPECT_TRUE(refresh().empty());
  EXPECT_EQ(shown(kMemcpy), 5u);
  now_ += 2 * kSecond;
  EXPECT_THAT(refresh(), testing::ElementsAre(kCgroup)) << "to be forgotten";
  EXPECT_EQ(shown(kMemcpy), 0u);
}

TEST_F(WorkloadsTest, ATraceTellsEndedContainersAtItsEndAndNotAmongTheSeries) {
  see_container("");
  workloads_.set_fallback(policy::PolicySet({}, {}, {}).decide_unmatched());
  Workloads::Settings settings;
  settings.keep_ended = true;
  workloads_.set_settings(settings);
  refresh();
  count(kMemcpy, 5);
  EXPECT_TRUE(workloads_.workload_of(kCgroup).exported);
  workloads_.set_gone({kCgroup}, now_);
  now_ += 61 * kSecond;
  EXPECT_TRUE(refresh().empty());
  EXPECT_EQ(shown(kMemcpy), 5u);
  EXPECT_FALSE(workloads_.workload_of(kCgroup).exported);
}

TEST_F(WorkloadsTest, WhatAServiceHasCountedStaysWhileItsSuccessorLives) {
  constexpr CgroupId kOld{8}, kNew{9};
  workloads_.set_fallback(policy::PolicySet({}, {}, {}).decide_unmatched());
  containers_ = attribute::ContainerTable({{kOld, service("/a.service")}});
  refresh();
  workloads_.set_gone({kOld}, now_);
  containers_ =
      attribute::ContainerTable({{kOld, service("/a.service")}, {kNew, service("/a.service")}});
  now_ += 61 * kSecond;
  EXPECT_TRUE(refresh().empty()) << "the same series go on";
  workloads_.set_gone({kOld, kNew}, now_);
  now_ += 61 * kSecond;
  EXPECT_EQ(refresh().size(), 2u);
}

TEST_F(WorkloadsTest, ACgroupWithoutAPathWaitsAndIsThenToldWithoutANameForGood) {
  workloads_.set_fallback(policy::PolicySet({}, {}, {}).decide_unmatched());
  count(kMemcpy, 5);
  const auto reason = [&] {
    model::Snapshot snapshot = counted_;
    workloads_.filter(snapshot, now_);
    return snapshot.unattributed_calls.at("unknown_cgroup");
  };
  EXPECT_EQ(reason(), 0u);
  EXPECT_FALSE(workloads_.workload_of(kCgroup).exported);
  now_ += 11 * kSecond;
  EXPECT_EQ(reason(), 5u);
  EXPECT_TRUE(workloads_.workload_of(kCgroup).exported);
  containers_ = attribute::ContainerTable({{kCgroup, service("/late.service")}});
  refresh();
  count(kMemcpy, 2);
  EXPECT_EQ(reason(), 7u);
  EXPECT_EQ(workloads_.workload_of(kCgroup).container, "") << "its counts would leave their series";
}

TEST_F(WorkloadsTest, ACallThatWasOnceWithoutAPodStaysCountedAsSuch) {
  see_container("uid-lost");
  cluster({}, true);
  refresh();
  count(kMemcpy, 5);
  now_ += 11 * kSecond;
  refresh();
  shown(kMemcpy);
  pods_.apply(k8s::ChangeType::added, pod_object("lost", {}));
  cluster({}, true);
  refresh();
  model::Snapshot snapshot = counted_;
  workloads_.filter(snapshot, now_);
  EXPECT_EQ(snapshot.unattributed_calls.at("unknown_pod"), 5u);
}

TEST_F(WorkloadsTest, ACgroupNamedAfterAnotherPodsContainerBelongsToThePodOfItsPath) {
  const std::string own(64, 'b');
  pods_.apply(k8s::ChangeType::added, pod_object("victim", {}));  // has kContainerId
  nlohmann::json attacker = pod_object("attacker", {});
  attacker["status"]["containerStatuses"][0]["containerID"] = "containerd://" + own;
  pods_.apply(k8s::ChangeType::added, attacker);
  cluster({}, true);
  attribute::ContainerInfo info;
  info.container_id = kContainerId;  // the innermost, and what the attacker wrote
  info.label = own + "/" + kContainerId;
  info.container_ids = {own, kContainerId};
  info.pods = {{"uid-attacker", {own}}, {"uid-victim", {kContainerId}}};
  info.pod_uid = "uid-victim";
  info.cgroup_path = "/kubepods/poduid-attacker/" + own + "/poduid-victim/" + kContainerId;
  containers_ = attribute::ContainerTable(
      {{kCgroup, std::make_shared<const attribute::ContainerInfo>(info)}});
  refresh();
  EXPECT_EQ(workloads_.workload_of(kCgroup).pod, "attacker");
  info.pods = {};
  info.pod_uid = "";
  info.cgroup_path = "/user.slice/" + kContainerId;
  containers_ = attribute::ContainerTable(
      {{CgroupId{8}, std::make_shared<const attribute::ContainerInfo>(info)}});
  refresh();
  EXPECT_EQ(workloads_.workload_of(CgroupId{8}).pod, "") << "in no pod's cgroup at all";
}

TEST(MetricLabelName, IsOneThatPrometheusAllows) {
  EXPECT_EQ(metric_label_name("label_", "batch.kubernetes.io/job-name"),
            "label_batch_kubernetes_io_job_name");
}

}  // namespace
}  // namespace ingero::app
