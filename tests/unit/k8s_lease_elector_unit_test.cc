// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>

#include "k8s/api_object.h"
#include "k8s/lease_elector.h"

namespace ingero::k8s {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using namespace std::chrono_literals;

class ManualClock : public ClockSource {
 public:
  std::uint64_t monotonic_ns() const override { return now_ns; }
  std::uint64_t boottime_ns() const override { return now_ns; }
  std::uint64_t realtime_ns() const override { return unix_ns + now_ns; }
  void advance(std::chrono::nanoseconds time) {
    now_ns += static_cast<std::uint64_t>(time.count());
  }
  std::atomic<std::uint64_t> now_ns{1'000'000'000};
  std::uint64_t unix_ns = 1'769'860'442'000'000'000;
};

/// One lease, kept as the API server keeps it: a write needs the version that is there.
class LeaseServer : public Transport, public Writer {
 public:
  Result<std::string> get(const std::string& path, std::stop_token) override {
    const std::lock_guard lock(mutex);
    EXPECT_EQ(path, "/apis/coordination.k8s.io/v1/namespaces/ingero/leases/leader");
    if (is_down) return fail(Error{"GET", path, "connection refused", "", 0});
    if (lease.is_null()) return fail(Error{"GET", path, "404 Not Found", "", 404});
    return lease.dump();
  }
  Status watch(const std::string&, std::chrono::seconds, const LineSink&,
               std::stop_token) override {
    return {};
  }
  Result<json> send(WriteMethod method, const std::string& path, const json& body, BodyType type,
                    std::stop_token stop) override {
    const std::lock_guard lock(mutex);
    EXPECT_EQ(type, BodyType::json);
    if (stop.stop_requested()) return fail(Error{"PUT", path, "stopped", "", 0});
    if (is_down) return fail(Error{"PUT", path, "connection refused", "", 0});
    const bool fits =
        method == WriteMethod::post
            ? lease.is_null()
            : text_at(body, {"metadata", "resourceVersion"}) == std::to_string(version);
    if (!fits || refuse_next) {
      refuse_next = false;
      return fail(Error{"PUT", path, "409 Conflict", "", 409});
    }
    store(body);
    return lease;
  }
  void store(json object) {
    lease = std::move(object);
    lease["metadata"]["resourceVersion"] = std::to_string(++version);
  }
  json spec() {
    const std::lock_guard lock(mutex);
    return lease["spec"];
  }

  std::mutex mutex;
  json lease;
  int version = 0;
  bool is_down = false;
  bool refuse_next = false;
};

/// An elector whose thread takes a step when the test says so.
class Agent {
 public:
  Agent(LeaseServer& server, ManualClock& clock, const std::string& identity) {
    LeaseOptions options;
    options.k8s_namespace = "ingero";
    options.name = "leader";
    options.identity = identity;
    LeaseSeams seams;
    seams.clock = &clock;
    seams.random = [] { return 0.5; };
    seams.wait = [this](std::chrono::nanoseconds time, const std::stop_token& stop) {
      std::unique_lock lock(mutex_);
      wait_ = time;
      ++steps_;
      changed_.notify_all();
      changed_.wait(lock, stop, [this] { return allowed_ > steps_; });
    };
    auto started = LeaseElector::start(
        server, server, options, [this](bool leads) { changes.push_back(leads); }, seams);
    EXPECT_TRUE(started);
    elector = std::move(*started);
    finish_step();
  }
  ~Agent() { elector->stop(); }
  /// Ends the wait, and returns when the next one begins.
  void step() {
    {
      const std::lock_guard lock(mutex_);
      ++allowed_;
      changed_.notify_all();
    }
    finish_step();
  }
  std::int64_t wait_ms() const {
    return std::chrono::duration_cast<std::chrono::milliseconds>(wait_).count();
  }
  bool leads() const { return elector->is_leader(); }

  std::vector<bool> changes;
  std::unique_ptr<LeaseElector> elector;

 private:
  void finish_step() {
    std::unique_lock lock(mutex_);
    ASSERT_TRUE(changed_.wait_for(lock, 30s, [this] { return steps_ == allowed_; }));
  }
  std::mutex mutex_;
  std::condition_variable_any changed_;
  int steps_ = 0;
  int allowed_ = 1;
  std::chrono::nanoseconds wait_{};
};

class LeaseElectorTest : public testing::Test {
 protected:
  ManualClock clock;
  LeaseServer server;
};

TEST_F(LeaseElectorTest, TheFirstMakesTheLeaseAndTheSecondFollows) {
  Agent first(server, clock, "a");
  EXPECT_TRUE(first.leads());
  EXPECT_EQ(first.wait_ms(), 5000);
  const json spec = server.spec();
  EXPECT_EQ(spec["holderIdentity"], "a");
  EXPECT_EQ(spec["leaseDurationSeconds"], 15);
  EXPECT_EQ(spec["renewTime"], "2026-01-31T11:54:03.000000Z");
  EXPECT_EQ(spec["acquireTime"], spec["renewTime"]);
  Agent second(server, clock, "b");
  EXPECT_FALSE(second.leads());
  EXPECT_EQ(second.elector->holder(), "a");
  EXPECT_EQ(second.wait_ms(), 10000);
  clock.advance(5s);
  first.step();
  EXPECT_TRUE(first.leads());
  EXPECT_EQ(server.spec()["renewTime"], "2026-01-31T11:54:08.000000Z");
  EXPECT_EQ(server.spec()["acquireTime"], "2026-01-31T11:54:03.000000Z");
  EXPECT_THAT(first.changes, ElementsAre(true));
  EXPECT_EQ(first.elector->stats().renewals, 2u);
}

TEST_F(LeaseElectorTest, ALeaseThatIsNotRenewedIsTakenAfterItsDurationAsSeenHere) {
  Agent first(server, clock, "a");
  clock.unix_ns += 3'600'000'000'000;  // another wall clock must not matter
  clock.advance(8s);
  Agent second(server, clock, "b");
  EXPECT_EQ(second.wait_ms(), 10000);
  clock.advance(2s);
  EXPECT_FALSE(first.leads()) << "its deadline is over";
  clock.advance(8s);
  second.step();
  EXPECT_FALSE(second.leads()) << "seen for 10 s only";
  EXPECT_EQ(second.wait_ms(), 5500) << "to the end of the lease, and some more";
  clock.advance(5500ms);
  second.step();
  EXPECT_TRUE(second.leads());
  EXPECT_EQ(server.spec()["holderIdentity"], "b");
  EXPECT_EQ(server.spec()["leaseTransitions"], 1);
  first.step();  // its version is an old one
  EXPECT_FALSE(first.leads());
  EXPECT_EQ(first.elector->stats().conflicts, 1u);
  first.step();
  EXPECT_EQ(first.elector->holder(), "b");
  EXPECT_THAT(first.changes, ElementsAre(true, false));
}

TEST_F(LeaseElectorTest, ARenewalStartsTheTimeAnew) {
  Agent first(server, clock, "a");
  Agent second(server, clock, "b");
  for (int i = 0; i < 6; ++i) {
    clock.advance(5s);
    first.step();
    second.step();
    EXPECT_TRUE(first.leads());
    EXPECT_FALSE(second.leads());
  }
}

TEST_F(LeaseElectorTest, OneOfTwoThatTakeAtOnceLosesTheRace) {
  server.store({{"metadata", {{"name", "leader"}}}, {"spec", {{"holderIdentity", ""}}}});
  server.refuse_next = true;
  Agent agent(server, clock, "a");
  EXPECT_FALSE(agent.leads());
  EXPECT_EQ(agent.elector->stats().conflicts, 1u);
  EXPECT_EQ(agent.elector->stats().failures, 0u);
  EXPECT_LT(agent.wait_ms(), 1000);
  agent.step();
  EXPECT_TRUE(agent.leads());
}

TEST_F(LeaseElectorTest, LeadingEndsByItselfWhileTheServerIsAway) {
  Agent agent(server, clock, "a");
  server.is_down = true;
  clock.advance(5s);
  agent.step();
  EXPECT_TRUE(agent.leads());
  EXPECT_LT(agent.wait_ms(), 5000);
  clock.advance(4999ms);
  EXPECT_TRUE(agent.leads());
  clock.advance(1ms);
  EXPECT_FALSE(agent.leads());
  agent.step();
  EXPECT_THAT(agent.changes, ElementsAre(true, false));
  EXPECT_NE(agent.elector->stats().last_error, "");
  server.is_down = false;
  agent.step();
  EXPECT_TRUE(agent.leads()) << "it is still the holder";
  EXPECT_EQ(agent.elector->stats().terms, 2u);
}

TEST_F(LeaseElectorTest, AStopGivesTheLeaseBackAndTheNextTakesItAtItsNextLook) {
  Agent first(server, clock, "a");
  Agent second(server, clock, "b");
  first.elector->stop();
  EXPECT_FALSE(first.leads());
  EXPECT_EQ(server.spec()["holderIdentity"], "");
  EXPECT_THAT(first.changes, ElementsAre(true, false));
  second.step();
  EXPECT_TRUE(second.leads());
}

TEST_F(LeaseElectorTest, AFollowerThatStopsLeavesTheLeaseAlone) {
  Agent first(server, clock, "a");
  Agent second(server, clock, "b");
  second.elector->stop();
  EXPECT_EQ(server.spec()["holderIdentity"], "a");
}

TEST_F(LeaseElectorTest, WhatOthersPutOnTheLeaseStays) {
  server.store(
      {{"metadata", {{"name", "leader"}, {"labels", {{"team", "x"}}}}}, {"spec", nullptr}});
  Agent agent(server, clock, "a");
  EXPECT_TRUE(agent.leads());
  EXPECT_EQ(server.lease["metadata"]["labels"]["team"], "x");
}

TEST_F(LeaseElectorTest, AnswersThatAreNoLeaseAreFailures) {
  server.lease = "odd";
  Agent agent(server, clock, "a");
  EXPECT_FALSE(agent.leads());
  EXPECT_EQ(agent.elector->stats().failures, 1u);
}

TEST_F(LeaseElectorTest, WithoutAnIdentityItDoesNotStart) {
  EXPECT_FALSE(LeaseElector::start(server, server, {.k8s_namespace = "ingero"}));
}

}  // namespace
}  // namespace ingero::k8s
