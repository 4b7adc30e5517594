// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <deque>
#include <mutex>

#include "k8s/event_recorder.h"
#include "k8s/object_applier.h"
#include "k8s/object_store.h"

namespace ingero::k8s {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;
using namespace std::chrono_literals;

class ManualClock : public ClockSource {
 public:
  std::uint64_t monotonic_ns() const override { return now_ns; }
  std::uint64_t boottime_ns() const override { return now_ns; }
  std::uint64_t realtime_ns() const override { return 1'769'860'442'000'000'000; }
  std::uint64_t now_ns = 1;
};

/// Answers writes with the codes that the test gives, then with success.
class RecordedWriter : public Writer {
 public:
  Result<json> send(WriteMethod method, const std::string& path, const json& body, BodyType type,
                    std::stop_token stop) override {
    std::unique_lock lock(mutex_);
    const char* methods[] = {"POST", "PUT", "PATCH", "DELETE"};
    const char* types[] = {"json", "merge", "apply"};
    asked.push_back(fmt::format("{} {} {}", methods[static_cast<int>(method)], path,
                                types[static_cast<int>(type)]));
    bodies.push_back(body);
    changed_.notify_all();
    changed_.wait(lock, stop, [this] { return !is_held; });
    int code = -1;
    if (!codes.empty()) {
      code = codes.front();
      codes.pop_front();
    }
    if (code >= 0) return fail(Error{"write", path, "refused", "", code});
    return json::object();
  }
  void wait_for_writes(std::size_t count) {
    std::unique_lock lock(mutex_);
    ASSERT_TRUE(changed_.wait_for(lock, 30s, [&] { return asked.size() >= count; }));
  }
  void let_go() {
    const std::lock_guard lock(mutex_);
    is_held = false;
    changed_.notify_all();
  }
  std::vector<json> seen() {
    const std::lock_guard lock(mutex_);
    return bodies;
  }

  std::vector<std::string> asked;
  std::vector<json> bodies;
  std::deque<int> codes;
  bool is_held = false;

 private:
  std::mutex mutex_;
  std::condition_variable_any changed_;
};

template <typename Condition>
void wait_until(Condition&& holds) {
  const auto end = std::chrono::steady_clock::now() + 30s;
  while (!holds() && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(1ms);
  ASSERT_TRUE(holds());
}

class EventRecorderTest : public testing::Test {
 protected:
  void start(std::size_t max_queue = 256) {
    EventRecorderOptions options;
    options.node = "gpu-7";
    options.instance = "ingero-x7k2p";
    options.max_queue = max_queue;
    options.backoff = {1ms, 2ms};
    auto started = EventRecorder::start(writer, options, clock);
    ASSERT_TRUE(started);
    recorder = std::move(*started);
  }
  Event event(const std::string& message) {
    return {
        {"v1", "Pod", "research", "train-0", "u-1"}, EventType::warning, "AttachFailed", message};
  }
  ManualClock clock;
  RecordedWriter writer;
  std::unique_ptr<EventRecorder> recorder;
};

TEST_F(EventRecorderTest, AnEventIsWhatTheApiServerTakes) {
  start();
  recorder->record(event("permission denied"));
  writer.wait_for_writes(1);
  wait_until([&] { return recorder->stats().sent == 1; });
  EXPECT_THAT(writer.asked, ElementsAre("POST /api/v1/namespaces/research/events json"));
  EXPECT_EQ(writer.seen()[0], json::parse(R"({
    "apiVersion": "v1", "kind": "Event",
    "metadata": {"generateName": "ingero-", "namespace": "research"},
    "involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": "research",
                       "name": "train-0", "uid": "u-1"},
    "reason": "AttachFailed", "message": "permission denied", "type": "Warning",
    "source": {"component": "ingero", "host": "gpu-7"},
    "reportingComponent": "ingero", "reportingInstance": "ingero-x7k2p",
    "firstTimestamp": "2026-01-31T11:54:02Z", "lastTimestamp": "2026-01-31T11:54:02Z",
    "count": 1})"));
}

TEST_F(EventRecorderTest, AnEventOfAClusterObjectIsInTheDefaultNamespace) {
  start();
  recorder->record(
      {{"ingero.io/v1alpha1", "GpuTracePolicy", "", "p", ""}, EventType::normal, "Applied", ""});
  writer.wait_for_writes(1);
  EXPECT_EQ(writer.asked[0], "POST /api/v1/namespaces/default/events json");
  EXPECT_FALSE(writer.seen()[0]["involvedObject"].contains("namespace"));
  EXPECT_EQ(writer.seen()[0]["type"], "Normal");
}

TEST_F(EventRecorderTest, AMessageIsCutToWholeCharactersAndValidText) {
  start();
  recorder->record(event(std::string(1023, 'x') + "\u00e9"));
  recorder->record(event("\xff\n"));
  writer.wait_for_writes(2);
  EXPECT_EQ(writer.seen()[0]["message"], std::string(1023, 'x'));
  EXPECT_EQ(writer.seen()[1]["message"], R"(\xff\x0a)");
}

TEST_F(EventRecorderTest, TheSameEventIsToldOncePerInterval) {
  start();
  recorder->record(event("a"));
  recorder->record(event("a"));
  recorder->record(event("b"));
  writer.wait_for_writes(2);
  EXPECT_EQ(recorder->stats().repeated, 1u);
  clock.now_ns += 600'000'000'000;
  recorder->record(event("a"));
  writer.wait_for_writes(3);
}

TEST_F(EventRecorderTest, AServerThatIsAwayIsWaitedForAndTheQueueIsBounded) {
  writer.is_held = true;
  writer.codes = {0, 503, 429};
  start(2);
  recorder->record(event("a"));
  writer.wait_for_writes(1);
  recorder->record(event("b"));
  recorder->record(event("c"));
  EXPECT_EQ(recorder->stats().dropped, 1u);
  writer.let_go();
  wait_until([&] { return recorder->stats().sent == 2; });
  EXPECT_THAT(writer.seen(), SizeIs(5));
  recorder->record(event("c"));
  wait_until([&] { return recorder->stats().sent == 3; });
}

TEST_F(EventRecorderTest, ARefusedEventIsNotTriedAgain) {
  writer.codes = {403};
  start();
  recorder->record(event("a"));
  recorder->record(event("b"));
  wait_until([&] { return recorder->stats().sent == 1; });
  EXPECT_EQ(recorder->stats().refused, 1u);
  EXPECT_THAT(writer.seen(), SizeIs(2));
}

TEST_F(EventRecorderTest, AStopDoesNotWaitForTheServer) {
  writer.is_held = true;
  start();
  recorder->record(event("a"));
  writer.wait_for_writes(1);
  recorder->stop();
}

class ObjectApplierTest : public testing::Test {
 protected:
  void start() {
    ObjectApplierOptions options;
    options.interval = 1ms;
    options.backoff = {1ms, 2ms};
    options.prerequisite = [this](const std::string& path,
                                  const std::stop_token&) -> Result<std::optional<AppliedObject>> {
      asked_for.push_back(path);
      if (refusals > 0) {
        --refusals;
        return fail(Error{"read owner", path, "refused", "", 403});
      }
      return to_make;
    };
    auto started = ObjectApplier::start(writer, options);
    ASSERT_TRUE(started);
    applier = std::move(*started);
  }
  void wait_for_successes(std::uint64_t count) {
    wait_until([&] { return applier->stats().writes >= count; });
  }
  RecordedWriter writer;
  std::vector<std::string> asked_for;
  int refusals = 0;
  std::optional<AppliedObject> to_make;
  std::unique_ptr<ObjectApplier> applier;
};

TEST_F(ObjectApplierTest, OnlyAChangeIsWritten) {
  start();
  applier->apply("/n/status", 1);
  wait_for_successes(1);
  applier->apply("/n/status", 1);
  applier->apply("/n/status", 2);
  wait_for_successes(2);
  EXPECT_THAT(writer.seen(), ElementsAre(1, 2));
  EXPECT_EQ(writer.asked[0], "PATCH /n/status apply");
  applier->forget("/n/status");
  applier->apply("/n/status", 2);
  wait_for_successes(3);
}

TEST_F(ObjectApplierTest, WhatComesWhileAWriteRunsIsWrittenAsItIsLast) {
  writer.is_held = true;
  start();
  applier->apply("/n", 1);
  writer.wait_for_writes(1);
  for (int i = 2; i <= 50; ++i) applier->apply("/n", i);
  applier->apply("/m", 7);
  writer.let_go();
  wait_for_successes(3);
  EXPECT_THAT(writer.seen(), testing::UnorderedElementsAre(1, 7, 50));
}

TEST_F(ObjectApplierTest, AFailureIsTriedAgain) {
  writer.codes = {0, 500, 403};
  start();
  applier->apply("/n", 1);
  wait_for_successes(1);
  EXPECT_EQ(applier->stats().failures, 3u);
  EXPECT_THAT(writer.seen(), ElementsAre(1, 1, 1, 1));
}

TEST_F(ObjectApplierTest, WhatAPathNeedsIsMadeBeforeItsFirstWriteAndWhenItIsMissing) {
  to_make = AppliedObject{"/n", {{"kind", "GpuTraceNode"}}};
  start();
  applier->apply("/n/status", 1);
  wait_for_successes(1);
  applier->apply("/n/status", 2);
  wait_for_successes(2);
  writer.codes = {404};
  applier->apply("/n/status", 3);
  wait_for_successes(3);
  EXPECT_THAT(writer.asked,
              ElementsAre("PATCH /n apply", "PATCH /n/status apply", "PATCH /n/status apply",
                          "PATCH /n/status apply", "PATCH /n apply", "PATCH /n/status apply"));
  EXPECT_THAT(asked_for, ElementsAre("/n/status", "/n/status"));
}

TEST_F(ObjectApplierTest, APathWaitsForWhatItNeeds) {
  to_make = AppliedObject{"/n", {{"kind", "GpuTraceNode"}}};
  refusals = 2;
  start();
  applier->apply("/n/status", 1);
  wait_for_successes(1);
  EXPECT_EQ(applier->stats().failures, 2u);
  EXPECT_THAT(writer.asked, ElementsAre("PATCH /n apply", "PATCH /n/status apply"));
}

TEST_F(ObjectApplierTest, WhatNobodyMakesIsGivenUp) {
  writer.codes = {404};
  start();
  applier->apply("/gone/status", 1);
  wait_until([&] { return applier->stats().failures == 1; });
  applier->apply("/n", 1);
  wait_for_successes(1);
  EXPECT_THAT(writer.asked, ElementsAre("PATCH /gone/status apply", "PATCH /n apply"));
}

TEST_F(ObjectApplierTest, AStopDoesNotWaitForTheServer) {
  writer.is_held = true;
  start();
  applier->apply("/n", 1);
  writer.wait_for_writes(1);
  applier->stop();
}

struct Item {
  int value = 0;
  int version = 0;
};

class ObjectStoreTest : public testing::Test {
 protected:
  static json object(const char* name, const json& value, int version = 0) {
    return {{"metadata", {{"name", name}}}, {"value", value}, {"version", version}};
  }
  static Result<Item> parse(const json& object) {
    if (!object["value"].is_number()) return fail(Error{"read item", "value", "no number", "", 0});
    return Item{object["value"], object["version"]};
  }
  int changes = 0;
  ObjectStore<Item> store{parse, [this] { ++changes; },
                          [](const Item& a, const Item& b) { return a.value == b.value; }};
  InformerHandlers handlers = store.handlers();
};

TEST_F(ObjectStoreTest, SnapshotsAreImmutableAndFollowTheChanges) {
  EXPECT_FALSE(store.snapshot()->synced);
  handlers.on_snapshot({object("a", 1), object("b", 2)});
  const auto before = store.snapshot();
  EXPECT_TRUE(before->synced);
  handlers.on_change(ChangeType::modified, object("a", 5));
  handlers.on_change(ChangeType::deleted, object("b", 2));
  handlers.on_change(
      ChangeType::added,
      {{"metadata", {{"name", "c"}, {"namespace", "n"}}}, {"value", 3}, {"version", 0}});
  EXPECT_THAT(before->objects, SizeIs(2));
  EXPECT_EQ(before->objects.at("a").value, 1);
  EXPECT_THAT(store.snapshot()->objects, SizeIs(2));
  EXPECT_EQ(store.snapshot()->objects.at("a").value, 5);
  EXPECT_EQ(store.snapshot()->objects.at("n/c").value, 3);
  EXPECT_EQ(changes, 4);
}

TEST_F(ObjectStoreTest, WhatCannotBeReadIsAnErrorUntilItCan) {
  handlers.on_snapshot({object("a", 1)});
  handlers.on_change(ChangeType::modified, object("a", "odd"));
  EXPECT_THAT(store.snapshot()->objects, SizeIs(0));
  EXPECT_THAT(store.snapshot()->errors.at("a").message(), HasSubstr("no number"));
  handlers.on_change(ChangeType::modified, object("a", 2));
  EXPECT_THAT(store.snapshot()->errors, SizeIs(0));
  EXPECT_EQ(changes, 3);
  handlers.on_change(ChangeType::added, json::object());
  EXPECT_EQ(changes, 3);
}

/// Counts how often it was copied: a copy per object and change would be ten thousand times the work.
struct Copied {
  explicit Copied(int& count) : copies(&count) {}
  Copied(const Copied& other) : copies(other.copies) { ++*copies; }
  Copied(Copied&&) = default;
  Copied& operator=(const Copied&) = delete;
  Copied& operator=(Copied&&) = delete;
  ~Copied() = default;
  int* copies;
};

TEST(ObjectStoreCostTest, AThousandChangesCopyEachObjectOnceForTheNextReader) {
  int copies = 0;
  ObjectStore<Copied> store([&](const json&) -> Result<Copied> { return Copied(copies); }, {},
                            [](const Copied&, const Copied&) { return false; });
  const InformerHandlers handlers = store.handlers();
  const auto object = [](int i) { return json{{"metadata", {{"name", fmt::format("n{}", i)}}}}; };
  for (int i = 0; i < 1000; ++i) handlers.on_change(ChangeType::added, object(i));
  EXPECT_EQ(copies, 0);
  const auto snapshot = store.snapshot();
  EXPECT_THAT(snapshot->objects, SizeIs(1000));
  EXPECT_EQ(copies, 1000);
  EXPECT_EQ(store.snapshot(), snapshot) << "nothing has changed";
  EXPECT_EQ(copies, 1000);
}

TEST_F(ObjectStoreTest, AChangeThatIsNoneForTheReaderIsKeptButNotTold) {
  handlers.on_snapshot({});
  EXPECT_EQ(changes, 1) << "the first list, even if it is empty";
  handlers.on_change(ChangeType::added, object("a", 1, 1));
  handlers.on_change(ChangeType::modified, object("a", 1, 2));
  handlers.on_snapshot({object("a", 1, 3)});
  EXPECT_EQ(changes, 2);
  EXPECT_EQ(store.snapshot()->objects.at("a").version, 3);
}

}  // namespace
}  // namespace ingero::k8s
