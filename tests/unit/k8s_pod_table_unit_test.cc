// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "k8s/pod_table.h"

namespace ingero::k8s {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::Pair;
using testing::SizeIs;

const std::string kInit(64, '1');
const std::string kTrainer(64, '2');
const std::string kTrainerBefore(64, '3');
const std::string kDebugger(64, '4');
const std::string kProxy(64, '5');
const std::string kTrainingUid = "0f4b6c1e-8a57-4c1c-9d0e-3b6f1d2a7c55";

class ManualClock : public ClockSource {
 public:
  std::uint64_t monotonic_ns() const override { return now_ns; }
  std::uint64_t boottime_ns() const override { return now_ns; }
  std::uint64_t realtime_ns() const override { return now_ns; }
  void advance(std::chrono::nanoseconds time) {
    now_ns += static_cast<std::uint64_t>(time.count());
  }
  std::uint64_t now_ns = 1000;
};

json load(const std::string& name) {
  std::ifstream file(std::string(INGERO_TEST_DATA) + "/k8s/" + name);
  return json::parse(file);
}

class PodTableTest : public testing::Test {
 protected:
  ManualClock clock;
  PodTable table{std::chrono::seconds(60), clock};
  const json training = load("pod_training.json");
  const json static_pod = load("pod_static.json");
};

TEST_F(PodTableTest, EveryContainerOfAPodIsFoundByTheIdOfTheRuntime) {
  table.replace({training});
  const auto snapshot = table.snapshot();
  const ContainerEntry* trainer = snapshot->find_container(kTrainer);
  ASSERT_NE(trainer, nullptr);
  EXPECT_EQ(trainer->name, "trainer");
  EXPECT_EQ(trainer->kind, ContainerKind::app);
  EXPECT_EQ(trainer->pod->name, "llm-train-0");
  EXPECT_EQ(trainer->pod->k8s_namespace, "research");
  EXPECT_EQ(trainer->pod->uid, kTrainingUid);
  EXPECT_EQ(trainer->pod->labels.at("job-name"), "llm-train");
  EXPECT_FALSE(trainer->gone_ns);
  ASSERT_NE(snapshot->find_container(kInit), nullptr);
  EXPECT_EQ(snapshot->find_container(kInit)->kind, ContainerKind::init);
  EXPECT_EQ(snapshot->find_container(kInit)->name, "fetch-data");
  ASSERT_NE(snapshot->find_container(kDebugger), nullptr);
  EXPECT_EQ(snapshot->find_container(kDebugger)->kind, ContainerKind::ephemeral);
  EXPECT_THAT(snapshot->containers(), SizeIs(4));
  EXPECT_EQ(snapshot->find_container(std::string(64, '9')), nullptr);
}

TEST_F(PodTableTest, AnInitContainerThatKeepsRunningIsASidecar) {
  json with_sidecar = training;
  with_sidecar["spec"]["initContainers"][0]["restartPolicy"] = "Always";
  table.replace({with_sidecar});
  EXPECT_EQ(table.snapshot()->find_container(kInit)->kind, ContainerKind::sidecar);
  EXPECT_EQ(table.snapshot()->find_container(kTrainer)->kind, ContainerKind::app);
  with_sidecar["spec"]["initContainers"] = {7, {{"restartPolicy", "Always"}}};
  table.replace({with_sidecar});
  EXPECT_EQ(table.snapshot()->find_container(kInit)->kind, ContainerKind::init);
  const auto options = make_pod_informer_options("n");
  ASSERT_EQ(options.dropped_fields.size(), 1u);
  EXPECT_THAT(options.dropped_fields[0].except, ElementsAre("initContainers"));
}

TEST_F(PodTableTest, AnnotationsAreBoundedAndThePhaseIsKnown) {
  json pod = training;
  pod["metadata"]["annotations"] = {
      {"kubectl.kubernetes.io/last-applied-configuration", "{}"},
      {"long", std::string(255, 'x') + "\u00e9"},
      {"odd", 7},
      {"team", "research"},
  };
  EXPECT_THAT(read_pod(pod)->annotations,
              ElementsAre(Pair("long", std::string(255, 'x')), Pair("team", "research")));
  EXPECT_EQ(read_pod(pod)->phase, "Running");
  for (int i = 0; i < 100; ++i) pod["metadata"]["annotations"]["k" + std::to_string(i)] = "v";
  EXPECT_THAT(read_pod(pod)->annotations, SizeIs(64));
  pod["metadata"]["annotations"] = "none";
  EXPECT_THAT(read_pod(pod)->annotations, SizeIs(0));
}

TEST_F(PodTableTest, TheContainerBeforeARestartIsStillKnown) {
  table.replace({training});
  const auto snapshot = table.snapshot();
  ASSERT_NE(snapshot->find_container(kTrainerBefore), nullptr);
  EXPECT_EQ(snapshot->find_container(kTrainerBefore)->name, "trainer");
}

TEST_F(PodTableTest, AContainerThatTheStatusNoLongerNamesStaysForTheRetention) {
  table.replace({training});
  json changed = training;
  changed["status"]["containerStatuses"][1]["lastState"] = json::object();
  table.apply(ChangeType::modified, changed);
  EXPECT_EQ(table.snapshot()->find_container(kTrainerBefore)->gone_ns, 1000u);
  EXPECT_FALSE(table.snapshot()->find_container(kTrainer)->gone_ns);
  clock.advance(std::chrono::seconds(61));
  EXPECT_EQ(table.snapshot()->find_container(kTrainerBefore), nullptr);
  EXPECT_NE(table.snapshot()->find_container(kTrainer), nullptr);
}

TEST_F(PodTableTest, AStaticPodIsFoundByTheUidOfItsCgroupToo) {
  table.replace({static_pod});
  const auto snapshot = table.snapshot();
  const PodEntry* by_hash = snapshot->find_pod("7c1ab2f0d5e94386b0a1c2d3e4f50617");
  ASSERT_NE(by_hash, nullptr);
  EXPECT_EQ(by_hash->pod->name, "kube-proxy-gpu-node-7");
  EXPECT_EQ(by_hash->pod, snapshot->find_pod("9d3d8f6a-1c0e-4a2f-b1d7-5e0c4f3a9b21")->pod);
  EXPECT_NE(snapshot->find_container(kProxy), nullptr);
}

TEST_F(PodTableTest, APodThatOnlyClaimsTheHashOfAStaticOneDoesNotGetIt) {
  json impostor = training;
  impostor["metadata"]["annotations"]["kubernetes.io/config.hash"] = "7c1ab2f0d5e94386";
  table.replace({impostor});
  EXPECT_EQ(table.snapshot()->find_pod("7c1ab2f0d5e94386"), nullptr);
}

TEST_F(PodTableTest, AMirrorPodThatWasMadeAnewTakesTheHashOver) {
  table.replace({static_pod});
  json anew = static_pod;
  anew["metadata"]["uid"] = "11111111-1c0e-4a2f-b1d7-5e0c4f3a9b21";
  table.apply(ChangeType::deleted, static_pod);
  table.apply(ChangeType::added, anew);
  const PodEntry* pod = table.snapshot()->find_pod("7c1ab2f0d5e94386b0a1c2d3e4f50617");
  ASSERT_NE(pod, nullptr);
  EXPECT_EQ(pod->pod->uid, "11111111-1c0e-4a2f-b1d7-5e0c4f3a9b21");
  EXPECT_FALSE(pod->gone_ns);
  EXPECT_FALSE(table.snapshot()->find_container(kProxy)->gone_ns);
}

TEST_F(PodTableTest, AMirrorPodThatWasMadeAnewBetweenTwoListsTakesTheContainersOver) {
  table.replace({static_pod});
  json anew = static_pod;
  anew["metadata"]["uid"] = "11111111-1c0e-4a2f-b1d7-5e0c4f3a9b21";
  table.replace({anew});
  const auto snapshot = table.snapshot();
  EXPECT_FALSE(snapshot->find_container(kProxy)->gone_ns);
  EXPECT_EQ(snapshot->find_container(kProxy)->pod->uid, "11111111-1c0e-4a2f-b1d7-5e0c4f3a9b21");
}

TEST_F(PodTableTest, ContainersOfADeletedPodStayForTheRetentionAndThenGo) {
  table.replace({training, static_pod});
  table.apply(ChangeType::deleted, training);
  EXPECT_EQ(table.snapshot()->find_container(kTrainer)->gone_ns, 1000u);
  EXPECT_EQ(table.snapshot()->find_pod(kTrainingUid)->gone_ns, 1000u);
  clock.advance(std::chrono::seconds(59));
  EXPECT_NE(table.snapshot()->find_container(kTrainer), nullptr);
  clock.advance(std::chrono::seconds(1));
  EXPECT_EQ(table.snapshot()->find_container(kTrainer), nullptr);
  EXPECT_EQ(table.snapshot()->find_pod(kTrainingUid), nullptr);
  EXPECT_NE(table.snapshot()->find_container(kProxy), nullptr);
  EXPECT_EQ(table.stats().dropped, 4u);
}

TEST_F(PodTableTest, APodThatANewListNoLongerHasIsGone) {
  table.replace({training, static_pod});
  table.replace({static_pod});
  EXPECT_TRUE(table.snapshot()->find_container(kTrainer)->gone_ns);
  EXPECT_FALSE(table.snapshot()->find_container(kProxy)->gone_ns);
  clock.advance(std::chrono::seconds(10));
  table.replace({static_pod});
  EXPECT_EQ(table.snapshot()->find_container(kTrainer)->gone_ns, 1000u) << "counted from the first";
}

TEST_F(PodTableTest, APodThatIsListedAgainIsNoLongerGone) {
  table.replace({training});
  table.replace({});
  table.replace({training});
  EXPECT_FALSE(table.snapshot()->find_container(kTrainer)->gone_ns);
  clock.advance(std::chrono::hours(1));
  EXPECT_NE(table.snapshot()->find_container(kTrainer), nullptr);
}

TEST_F(PodTableTest, AContainerOnlyNamedByTheDeletionIsKnown) {
  table.apply(ChangeType::deleted, training);
  ASSERT_NE(table.snapshot()->find_container(kTrainer), nullptr);
  EXPECT_TRUE(table.snapshot()->find_container(kTrainer)->gone_ns);
}

TEST_F(PodTableTest, APodCannotTakeTheContainerOfAnother) {
  table.replace({training});
  json thief = static_pod;
  thief["status"]["containerStatuses"][0]["containerID"] = "docker://" + kTrainer;
  table.apply(ChangeType::added, thief);
  EXPECT_EQ(table.snapshot()->find_container(kTrainer)->pod->name, "llm-train-0");
}

TEST_F(PodTableTest, NewLabelsShowOnTheContainers) {
  table.replace({training});
  const auto before = table.snapshot();
  json changed = training;
  changed["metadata"]["labels"] = {{"app", "eval"}, {"odd", 7}};
  table.apply(ChangeType::modified, changed);
  EXPECT_THAT(table.snapshot()->find_container(kTrainer)->pod->labels,
              ElementsAre(Pair("app", "eval")));
  EXPECT_EQ(before->find_container(kTrainer)->pod->labels.at("app"), "train") << "immutable";
}

TEST_F(PodTableTest, ASnapshotIsTheSameUntilSomethingChanges) {
  table.replace({training});
  EXPECT_EQ(table.snapshot(), table.snapshot());
}

TEST_F(PodTableTest, MalformedObjectsAreCountedAndHarmless) {
  json odd = training;
  odd["status"]["containerStatuses"] = {7, nullptr, {{"containerID", "containerd://zz"}}};
  odd["status"]["initContainerStatuses"] = "none";
  table.replace({odd, json::array(), json(3), {{"metadata", 5}}});
  EXPECT_EQ(table.stats().malformed_pods, 3u);
  EXPECT_EQ(table.stats().malformed_ids, 1u);
  EXPECT_NE(table.snapshot()->find_container(kDebugger), nullptr);
}

TEST(ContainerIdTest, TheIdsOfAllRuntimesAreReadAndOthersRefused) {
  EXPECT_EQ(parse_container_id("containerd://" + kTrainer), kTrainer);
  EXPECT_EQ(parse_container_id("cri-o://" + kTrainer), kTrainer);
  EXPECT_EQ(parse_container_id("docker://" + kTrainer), kTrainer);
  EXPECT_EQ(parse_container_id(""), std::nullopt);
  EXPECT_EQ(parse_container_id(kTrainer), std::nullopt);
  EXPECT_EQ(parse_container_id("://" + kTrainer), std::nullopt);
  EXPECT_EQ(parse_container_id("containerd://" + kTrainer + "0"), std::nullopt);
  EXPECT_EQ(parse_container_id("containerd://" + std::string(64, 'G')), std::nullopt);
}

}  // namespace
}  // namespace ingero::k8s
