// SPDX-License-Identifier: Apache-2.0
#include "app/orphan_reaper.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace ingero::app {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::IsEmpty;
using namespace std::chrono_literals;

/// Knows node "here", and not "gone"; has no answer for others.
class FakeApi : public k8s::Transport, public k8s::Writer {
 public:
  Result<std::string> get(const std::string& path, std::stop_token) override {
    const std::lock_guard lock(mutex_);
    asked_.push_back(path);
    if (path == "/api/v1/nodes/here") return "{}";
    return fail(Error{"GET", path, "no", "", path == "/api/v1/nodes/gone" ? 404 : 403});
  }
  Status watch(const std::string&, std::chrono::seconds, const k8s::LineSink&,
               std::stop_token) override {
    return {};
  }
  Result<json> send(k8s::WriteMethod method, const std::string& path, const json&, k8s::BodyType,
                    std::stop_token) override {
    const std::lock_guard lock(mutex_);
    written_.push_back(fmt::format("{} {}", method == k8s::WriteMethod::remove, path));
    return json::object();
  }
  std::vector<std::string> asked() {
    const std::lock_guard lock(mutex_);
    return asked_;
  }
  std::vector<std::string> written() {
    const std::lock_guard lock(mutex_);
    return written_;
  }
  void wait_asked(std::size_t count) {
    const auto end = std::chrono::steady_clock::now() + 30s;
    while (asked().size() < count && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(1ms);
    ASSERT_GE(asked().size(), count);
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> asked_, written_;
};

TEST(OrphanReaper, OnlyReportsOfNodesThatAreGoneAreDeleted) {
  FakeApi api;
  auto reaper = OrphanReaper::start(api, api, {0ms, 1h, 1ms});
  ASSERT_TRUE(reaper);
  (*reaper)->set_reports({"gone", "here", "odd/name"});
  api.wait_asked(3);
  reaper->reset();
  EXPECT_THAT(api.asked(), testing::UnorderedElementsAre("/api/v1/nodes/gone", "/api/v1/nodes/here",
                                                         "/api/v1/nodes/odd%2Fname"));
  EXPECT_THAT(api.written(), ElementsAre("true /apis/ingero.io/v1alpha1/gputracenodes/gone"));
}

TEST(OrphanReaper, EachNodeIsAskedForAgainAfterItsInterval) {
  FakeApi api;
  auto reaper = OrphanReaper::start(api, api, {0ms, 1ms, 1ms});
  ASSERT_TRUE(reaper);
  (*reaper)->set_reports({"a", "b"});
  api.wait_asked(4);
  (*reaper)->set_reports({"a"});
  reaper->reset();
  const auto asked = api.asked();
  EXPECT_NE(asked[0], asked[1]);
  EXPECT_EQ(asked[0], asked[2]);
  EXPECT_THAT(api.written(), IsEmpty());
}

TEST(OrphanReaper, AReportThatIsNewIsLetAlone) {
  FakeApi api;
  auto reaper = OrphanReaper::start(api, api, {1h, 1ms, 1ms});
  ASSERT_TRUE(reaper);
  (*reaper)->set_reports({"gone"});
  std::this_thread::sleep_for(50ms);
  EXPECT_THAT(api.asked(), IsEmpty());
}

}  // namespace
}  // namespace ingero::app
