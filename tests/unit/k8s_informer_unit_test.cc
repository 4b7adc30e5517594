// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <fstream>
#include <future>
#include <sstream>

#include "k8s/informer.h"
#include "k8s/pod_table.h"

namespace ingero::k8s {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class ManualClock : public ClockSource {
 public:
  std::uint64_t monotonic_ns() const override { return now_ns; }
  std::uint64_t boottime_ns() const override { return now_ns; }
  std::uint64_t realtime_ns() const override { return now_ns; }
  std::atomic<std::uint64_t> now_ns{1};
};

Error http_error(int code, std::string cause = "") {
  return Error{"GET", "", std::move(cause), "", code};
}

/// A watch as it went: its lines, how long it lasted, how it ended.
struct RecordedWatch {
  std::vector<std::string> lines;
  std::chrono::seconds lasted{300};
  Status end;
};

/// Answers lists and watches in the recorded order; when they are used up, blocks until the stop.
class RecordedTransport : public Transport {
 public:
  explicit RecordedTransport(ManualClock& clock) : clock_(clock) {}

  Result<std::string> get(const std::string& path, std::stop_token stop) override {
    std::unique_lock lock(mutex_);
    paths_.push_back(path);
    if (lists.empty()) return block(lock, stop);
    auto answer = std::move(lists.front());
    lists.pop_front();
    return answer;
  }

  Status watch(const std::string& path, std::chrono::seconds, const LineSink& on_line,
               std::stop_token stop) override {
    std::unique_lock lock(mutex_);
    paths_.push_back(path);
    if (watches.empty()) return fail(block(lock, stop).error());
    const RecordedWatch recorded = std::move(watches.front());
    watches.pop_front();
    lock.unlock();
    for (const auto& line : recorded.lines) {
      if (!on_line(line)) return {};
    }
    clock_.now_ns += static_cast<std::uint64_t>(std::chrono::nanoseconds(recorded.lasted).count());
    return recorded.end;
  }

  /// Waits until all answers are used up, and returns what was asked.
  std::vector<std::string> wait_until_idle() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(idle_.wait_for(lock, std::chrono::seconds(30), [this] { return blocked_; }));
    return paths_;
  }

  std::deque<Result<std::string>> lists;
  std::deque<RecordedWatch> watches;

 private:
  Result<std::string> block(std::unique_lock<std::mutex>& lock, const std::stop_token& stop) {
    blocked_ = true;
    idle_.notify_all();
    idle_.wait(lock, stop, [] { return false; });
    return fail(Error{"GET", "", "stopped", "", 0});
  }

  ManualClock& clock_;
  std::mutex mutex_;
  std::condition_variable_any idle_;
  bool blocked_ = false;
  std::vector<std::string> paths_;
};

json object(const std::string& name, int version) {
  return {{"metadata",
           {{"name", name},
            {"resourceVersion", std::to_string(version)},
            {"managedFields", {{{"manager", "kubelet"}}}}}},
          {"spec", {{"nodeName", "n"}}}};
}

std::string page(const std::vector<json>& items, int version, const std::string& next = "") {
  return json{{"kind", "PodList"},
              {"metadata", {{"resourceVersion", std::to_string(version)}, {"continue", next}}},
              {"items", items}}
      .dump();
}

std::string event(const char* type, const json& object) {
  return json{{"type", type}, {"object", object}}.dump();
}

std::string error_event(int code) {
  return event("ERROR", {{"kind", "Status"}, {"code", code}, {"message", "too old"}});
}

class InformerTest : public testing::Test {
 protected:
  void start() {
    InformerOptions options;
    options.path = "/api/v1/pods";
    options.field_selector = "spec.nodeName=n";
    options.dropped_fields = {"spec"};
    InformerHandlers handlers;
    handlers.on_snapshot = [this](std::vector<json> objects) {
      std::string names = "all:";
      for (const auto& item : objects) names += " " + text_at(item, {"metadata", "name"});
      seen.push_back(names);
      last_objects = std::move(objects);
    };
    handlers.on_change = [this](ChangeType type, json item) {
      if (throw_next.exchange(false)) throw std::runtime_error("a handler's fault");
      const char* verbs[] = {"added", "modified", "deleted"};
      seen.push_back(std::string(verbs[static_cast<int>(type)]) + " " +
                     text_at(item, {"metadata", "name"}));
    };
    InformerSeams seams;
    seams.clock = &clock;
    seams.random = [] { return 0.5; };
    seams.wait = [this](std::chrono::nanoseconds time, const std::stop_token&) {
      waits.push_back(std::chrono::duration_cast<std::chrono::milliseconds>(time).count());
    };
    auto started = Informer::start(transport, options, handlers, seams);
    ASSERT_TRUE(started) << started.error().message();
    informer = std::move(*started);
  }

  /// Runs the recording to its end; what was asked is in `asked` afterwards.
  void run() {
    start();
    asked = transport.wait_until_idle();
    informer->stop();
  }

  ManualClock clock;
  RecordedTransport transport{clock};
  std::vector<std::string> seen;
  std::vector<json> last_objects;
  std::vector<std::int64_t> waits;
  std::vector<std::string> asked;
  std::atomic<bool> throw_next{false};
  std::unique_ptr<Informer> informer;
};

TEST_F(InformerTest, AListInPagesIsOneSnapshotAndTheWatchBeginsThere) {
  transport.lists = {page({object("a", 3), object("b", 5)}, 40, "tok+en/="),
                     page({object("c", 7)}, 40)};
  run();
  EXPECT_THAT(seen, ElementsAre("all: a b c"));
  ASSERT_EQ(asked.size(), 3u);
  EXPECT_EQ(asked[0],
            "/api/v1/pods?limit=100&fieldSelector=spec.nodeName%3Dn&resourceVersion=0"
            "&resourceVersionMatch=NotOlderThan");
  EXPECT_EQ(asked[1],
            "/api/v1/pods?limit=100&fieldSelector=spec.nodeName%3Dn&continue=tok%2Ben%2F%3D");
  EXPECT_EQ(asked[2],
            "/api/v1/pods?watch=1&allowWatchBookmarks=true&resourceVersion=40&timeoutSeconds=450"
            "&fieldSelector=spec.nodeName%3Dn");
  EXPECT_TRUE(informer->stats().synced);
}

TEST_F(InformerTest, FieldsThatNobodyReadsAreDroppedButNotLabelsOfThatName) {
  json labelled = object("a", 3);
  labelled["metadata"]["labels"] = {{"spec", "kept"}, {"managedFields", "kept"}};
  transport.lists = {page({labelled}, 40)};
  run();
  ASSERT_EQ(last_objects.size(), 1u);
  EXPECT_FALSE(last_objects[0].contains("spec"));
  EXPECT_FALSE(last_objects[0]["metadata"].contains("managedFields"));
  EXPECT_EQ(last_objects[0]["metadata"]["labels"].size(), 2u);
  const auto watched = parse_watch_line(event("ADDED", labelled), {"spec"});
  ASSERT_TRUE(watched);
  EXPECT_EQ(watched->object, last_objects[0]);
}

TEST_F(InformerTest, MembersOfADroppedFieldCanBeKept) {
  json pod = object("a", 3);
  pod["spec"]["initContainers"] = {{{"name", "proxy"}, {"nodeName", "kept"}}};
  pod["status"] = {{"nodeName", "kept"}, {"phase", "Running"}};
  const json expected{{"initContainers", pod["spec"]["initContainers"]}};
  const DroppedFields dropped{{"spec", {"initContainers"}}};
  const auto watched = parse_watch_line(event("ADDED", pod), dropped);
  ASSERT_TRUE(watched);
  EXPECT_EQ(watched->object["spec"], expected);
  EXPECT_EQ(watched->object["status"], pod["status"]);
  const auto listed = parse_list_page(page({pod, pod}, 4), dropped);
  ASSERT_TRUE(listed);
  EXPECT_EQ(listed->objects[1], watched->object);
  EXPECT_FALSE(parse_watch_line(event("ADDED", pod), {"spec", "status"})->object.contains("spec"));
}

TEST_F(InformerTest, ChangesAreHandedOnInOrder) {
  transport.lists = {page({object("a", 3)}, 40)};
  transport.watches = {{{event("ADDED", object("b", 41)), event("MODIFIED", object("a", 42)),
                         event("DELETED", object("b", 43))},
                        std::chrono::seconds(300),
                        {}}};
  run();
  EXPECT_THAT(seen, ElementsAre("all: a", "added b", "modified a", "deleted b"));
  EXPECT_THAT(asked.back(), HasSubstr("resourceVersion=43&"));
  EXPECT_EQ(informer->stats().changes, 3u);
}

TEST_F(InformerTest, ABookmarkMovesThePlaceToResumeWithoutAChange) {
  transport.lists = {page({}, 40)};
  transport.watches = {{{event("BOOKMARK", object("", 99))}, std::chrono::seconds(300), {}}};
  run();
  EXPECT_THAT(seen, ElementsAre("all:"));
  EXPECT_THAT(asked.back(), HasSubstr("watch=1"));
  EXPECT_THAT(asked.back(), HasSubstr("resourceVersion=99&"));
  EXPECT_EQ(informer->stats().bookmarks, 1u);
}

TEST_F(InformerTest, AWatchThatWasCutResumesAtOnceWhereItEnded) {
  transport.lists = {page({}, 40)};
  transport.watches = {{{event("ADDED", object("a", 44))},
                        std::chrono::seconds(60),
                        fail(Error{"watch", "", "connection reset", "", 0})}};
  run();
  EXPECT_EQ(asked.size(), 3u) << "one list, two watches";
  EXPECT_THAT(asked.back(), HasSubstr("resourceVersion=44&"));
  EXPECT_TRUE(waits.empty());
  EXPECT_THAT(informer->stats().last_error, HasSubstr("connection reset"));
}

TEST_F(InformerTest, AnErrorEventThatSaysGoneListsAgain) {
  transport.lists = {page({object("a", 3)}, 40), page({object("b", 3)}, 80)};
  transport.watches = {{{error_event(410)}, std::chrono::seconds(300), {}}};
  run();
  EXPECT_THAT(seen, ElementsAre("all: a", "all: b"));
  EXPECT_THAT(asked[2], HasSubstr("limit=100"));
  EXPECT_THAT(asked[2], HasSubstr("resourceVersion=40&resourceVersionMatch=NotOlderThan"));
  EXPECT_THAT(asked.back(), HasSubstr("resourceVersion=80&"));
  EXPECT_EQ(informer->stats().expired, 1u);
}

TEST_F(InformerTest, AWatchThatIsAnsweredWith410ListsAgain) {
  transport.lists = {page({}, 40), page({}, 80)};
  transport.watches = {{{}, std::chrono::seconds(0), fail(http_error(410))}};
  run();
  EXPECT_EQ(informer->stats().lists, 2u);
  EXPECT_THAT(asked.back(), HasSubstr("resourceVersion=80&"));
}

TEST_F(InformerTest, AnExpiredContinueTokenBeginsTheListAnewWithTheNewestState) {
  transport.lists = {page({object("a", 3)}, 40, "token"), fail(http_error(410)),
                     page({object("b", 3)}, 50)};
  run();
  EXPECT_THAT(seen, ElementsAre("all: b")) << "the pages of two lists are never mixed";
  EXPECT_THAT(asked[2], Not(HasSubstr("continue")));
  EXPECT_THAT(asked[2], Not(HasSubstr("resourceVersion")));
}

TEST_F(InformerTest, AVersionThatTheServerDoesNotKnowYetIsForgotten) {
  transport.lists = {page({}, 900), page({}, 12)};
  transport.watches = {{{},
                        std::chrono::seconds(0),
                        fail(http_error(504, "504 Gateway Timeout: Too large resource version"))}};
  run();
  EXPECT_EQ(informer->stats().lists, 2u);
  EXPECT_THAT(asked[2], Not(HasSubstr("resourceVersion")));
}

TEST_F(InformerTest, AMalformedEventListsAgainRatherThanMissAChange) {
  transport.lists = {page({}, 40), page({object("a", 41)}, 42)};
  transport.watches = {
      {{R"({"type":"ADDED","object":{"metadata":{"name":"a")", event("ADDED", object("z", 41))},
       std::chrono::seconds(300),
       {}}};
  run();
  EXPECT_THAT(seen, ElementsAre("all:", "all: a"));
  EXPECT_EQ(informer->stats().malformed, 1u);
}

TEST_F(InformerTest, AMalformedListIsAskedForAgain) {
  transport.lists = {std::string("<html>proxy error</html>"), std::string("{\"items\":7}"),
                     std::string("[]"), page({object("a", 1)}, 2)};
  run();
  EXPECT_THAT(seen, ElementsAre("all: a"));
  EXPECT_EQ(informer->stats().malformed, 3u);
}

TEST_F(InformerTest, AttemptsThatFailComeEverMoreSlowlyUntilOneSucceeds) {
  for (int i = 0; i < 8; ++i)
    transport.lists.push_back(fail(Error{"GET", "", "connection refused", "", 0}));
  transport.lists.push_back(page({}, 40));
  transport.watches = {{{}, std::chrono::seconds(300), {}},
                       {{}, std::chrono::seconds(0), fail(http_error(503))}};
  run();
  // Three quarters of each step, as the random number is one half; the last begins anew.
  EXPECT_THAT(waits, ElementsAre(75, 150, 300, 600, 1200, 1875, 1875, 1875, 75));
}

TEST_F(InformerTest, AServerThatEndsEachWatchAtOnceIsNotAskedWithoutPause) {
  transport.lists = {page({}, 40)};
  for (int i = 0; i < 3; ++i) {
    transport.watches.push_back(
        {{event("ADDED", object("a", 41 + i))}, std::chrono::seconds(0), {}});
  }
  run();
  EXPECT_THAT(waits, ElementsAre(75, 150, 300));
}

TEST_F(InformerTest, ARefusalForLackOfRightsKeepsThePlaceAndTellsTheReason) {
  transport.lists = {page({}, 40)};
  transport.watches = {
      {{}, std::chrono::seconds(0), fail(http_error(403, "403 Forbidden: cannot watch"))}};
  run();
  EXPECT_EQ(informer->stats().lists, 1u);
  EXPECT_THAT(informer->stats().last_error, HasSubstr("cannot watch"));
}

TEST_F(InformerTest, AnErrorEventForTooManyRequestsKeepsThePlace) {
  transport.lists = {page({}, 40)};
  transport.watches = {{{error_event(429)}, std::chrono::seconds(0), {}}};
  run();
  EXPECT_EQ(informer->stats().lists, 1u);
  EXPECT_THAT(waits, ElementsAre(75));
}

TEST_F(InformerTest, AHandlerThatThrowsGetsAllObjectsAgain) {
  transport.lists = {page({}, 40), page({object("a", 41)}, 42)};
  transport.watches = {{{event("ADDED", object("a", 41))}, std::chrono::seconds(300), {}}};
  throw_next = true;
  run();
  EXPECT_THAT(seen, ElementsAre("all:", "all: a"));
}

TEST_F(InformerTest, StopEndsAWatchThatIsBlocked) {
  transport.lists = {page({}, 40)};
  start();
  transport.wait_until_idle();
  auto stopped = std::async(std::launch::async, [this] { informer->stop(); });
  ASSERT_EQ(stopped.wait_for(std::chrono::seconds(5)), std::future_status::ready);
  EXPECT_EQ(informer->stats().failures, 0u) << "a stop is no failure";
  informer->stop();
}

TEST_F(InformerTest, StopEndsTheWaitAfterAFailure) {
  RecordedTransport refusing(clock);
  refusing.lists.push_back(fail(Error{"GET", "", "connection refused", "", 0}));
  InformerOptions options;
  options.path = "/api/v1/pods";
  options.backoff = {std::chrono::hours(1), std::chrono::hours(1)};
  auto blocked = Informer::start(
      refusing, options, {[](std::vector<json>) {}, [](ChangeType, json) {}}, InformerSeams{});
  ASSERT_TRUE(blocked);
  while ((*blocked)->stats().failures == 0) std::this_thread::yield();
  auto stopped = std::async(std::launch::async, [&] { (*blocked)->stop(); });
  EXPECT_EQ(stopped.wait_for(std::chrono::seconds(5)), std::future_status::ready);
}

TEST(PodInformerTest, RecordedPodsReachTheTable) {
  std::ifstream file(std::string(INGERO_TEST_DATA) + "/k8s/pod_training.json");
  const json pod = json::parse(file);
  ManualClock clock;
  RecordedTransport transport(clock);
  transport.lists = {page({pod}, 40)};
  transport.watches = {{{event("DELETED", pod)}, std::chrono::seconds(300), {}}};
  PodTable table;
  auto informer =
      Informer::start(transport, make_pod_informer_options("gpu-node-7"), make_pod_handlers(table));
  ASSERT_TRUE(informer);
  EXPECT_THAT(transport.wait_until_idle().front(),
              HasSubstr("fieldSelector=spec.nodeName%3Dgpu-node-7"));
  (*informer)->stop();
  const auto* trainer = table.snapshot()->find_container(std::string(64, '2'));
  ASSERT_NE(trainer, nullptr);
  EXPECT_EQ(trainer->pod->name, "llm-train-0");
  EXPECT_TRUE(trainer->gone_ns);
}

}  // namespace
}  // namespace ingero::k8s
