// SPDX-License-Identifier: Apache-2.0
// The ConfigMap of the settings as it is read before the agent is made.
#include "app/config_map.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <nlohmann/json.hpp>
#include <sstream>

namespace ingero::app {
namespace {

using nlohmann::json;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using namespace std::chrono_literals;

const ConfigMapName kWhere{"gpu", "settings"};

Error http_error(int code, std::string cause) {
  return Error{"GET", "configmaps", std::move(cause), "", code};
}

std::string list_of(const std::vector<json>& objects) {
  return json{
      {"kind", "ConfigMapList"}, {"metadata", {{"resourceVersion", "9"}}}, {"items", objects}}
      .dump();
}

json config_map(const std::string& version, const json& data) {
  return {{"metadata", {{"name", "settings"}, {"uid", "u-1"}, {"resourceVersion", version}}},
          {"data", data}};
}

json with_yaml(const std::string& version, const std::string& yaml) {
  return config_map(version, {{"config.yaml", yaml}});
}

/// Answers in order; when the answers are used up, blocks until the stop, as a server that hangs.
class FakeTransport : public k8s::Transport {
 public:
  Result<std::string> get(const std::string& path, std::stop_token stop) override {
    paths.push_back(path);
    if (!answers.empty()) {
      auto answer = std::move(answers.front());
      answers.pop_front();
      return answer;
    }
    std::unique_lock lock(mutex_);
    condition_.wait(lock, stop, [] { return false; });
    return fail(http_error(0, "stopped"));
  }
  Status watch(const std::string&, std::chrono::seconds, const k8s::LineSink&,
               std::stop_token) override {
    return fail(http_error(0, "nothing is watched here"));
  }

  std::deque<Result<std::string>> answers;
  std::vector<std::string> paths;

 private:
  std::mutex mutex_;
  std::condition_variable_any condition_;
};

class ConfigMap : public ::testing::Test {
 protected:
  void SetUp() override {
    auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(log_);
    spdlog::set_default_logger(std::make_shared<spdlog::logger>("test", std::move(sink)));
  }
  void TearDown() override { spdlog::set_default_logger(before_); }

  std::vector<std::string> lines() const {
    std::vector<std::string> all;
    std::istringstream text(log_.str());
    for (std::string line; std::getline(text, line);) all.push_back(line);
    return all;
  }
  void answer(const std::vector<json>& objects) {
    transport_.answers.emplace_back(list_of(objects));
  }
  void begin(std::chrono::nanoseconds patience = 10s) {
    begin_with_config_map(settings_, transport_, kWhere, patience);
  }
  /// What the watch tells first.
  void watched(const json& object) {
    take_config_map(settings_, kWhere, *parse_config_map(object));
  }

  std::ostringstream log_;
  std::shared_ptr<spdlog::logger> before_ = spdlog::default_logger();
  FakeTransport transport_;
  LiveConfig settings_{{}, {}};
};

TEST_F(ConfigMap, SettingsThatNeedARestartHoldFromTheStart) {
  answer({with_yaml("7", "map_entries: 4096\nmax_series: 500\n")});
  begin();
  EXPECT_THAT(
      transport_.paths,
      ElementsAre("/api/v1/namespaces/gpu/configmaps?fieldSelector=metadata.name%3Dsettings"));
  const config::Config started = settings_.start();
  EXPECT_EQ(started.map_entries, 4096u);
  EXPECT_EQ(started.max_series, 500u);
  EXPECT_EQ(settings_.status().source, "gpu/settings");
  EXPECT_EQ(settings_.status().version, "7");
  EXPECT_THAT(settings_.status().waiting_for_restart, IsEmpty());
}

TEST_F(ConfigMap, TheFirstEventOfTheWatchChangesNothing) {
  const json object = with_yaml("7", "map_entries: 4096\n");
  answer({object});
  begin();
  settings_.start();
  int applied = 0;
  settings_.set_applier([&](const config::Config&) {
    ++applied;
    return Status{};
  });
  watched(object);
  EXPECT_EQ(applied, 0);
  EXPECT_EQ(settings_.status().reloads, 1u);
  EXPECT_THAT(settings_.status().waiting_for_restart, IsEmpty());
  watched(with_yaml("8", "map_entries: 8192\n"));
  EXPECT_EQ(applied, 1);
  EXPECT_THAT(settings_.status().waiting_for_restart, ElementsAre("map_entries"));
}

TEST_F(ConfigMap, FlagsWinOverIt) {
  LiveConfig settings({}, [](config::Config& config) {
    config.attach_method = config::AttachMethod::perf;
    return Status{};
  });
  answer({with_yaml("7", "attach_method: multi\nmap_entries: 4096\n")});
  begin_with_config_map(settings, transport_, kWhere);
  const config::Config started = settings.start();
  EXPECT_EQ(started.attach_method, config::AttachMethod::perf);
  EXPECT_EQ(started.map_entries, 4096u);
}

TEST_F(ConfigMap, AServerThatIsNotUpYetIsAskedAnew) {
  transport_.answers.emplace_back(fail(http_error(0, "connection refused")));
  transport_.answers.emplace_back(fail(http_error(503, "not ready")));
  transport_.answers.emplace_back(fail(http_error(429, "too many requests")));
  answer({with_yaml("7", "map_entries: 4096\n")});
  begin();
  EXPECT_EQ(settings_.start().map_entries, 4096u);
  EXPECT_THAT(transport_.paths, SizeIs(4));
}

TEST_F(ConfigMap, WithoutAnAnswerItStartsWithWhatItHas) {
  transport_.answers.emplace_back(fail(http_error(0, "connection refused")));
  begin(300ms);
  EXPECT_EQ(settings_.start(), config::Config{});
  EXPECT_TRUE(settings_.status().accepted) << "nothing was refused";
  ASSERT_THAT(lines(), SizeIs(1));
  EXPECT_THAT(lines()[0], HasSubstr("starts without the settings of ConfigMap gpu/settings"));
  EXPECT_THAT(lines()[0], HasSubstr("connection refused"));
  watched(with_yaml("7", "map_entries: 4096\nmax_series: 500\n"));
  EXPECT_EQ(settings_.config().max_series, 500u) << "the watch brings the rest";
  EXPECT_THAT(settings_.status().waiting_for_restart, ElementsAre("map_entries"));
}

TEST_F(ConfigMap, WhoMayNotReadItIsToldOnceAndAsksOnce) {
  transport_.answers.emplace_back(fail(http_error(403, "forbidden: list configmaps")));
  begin();
  EXPECT_EQ(settings_.start(), config::Config{});
  EXPECT_THAT(transport_.paths, SizeIs(1));
  ASSERT_THAT(lines(), SizeIs(1));
  EXPECT_THAT(lines()[0], HasSubstr("forbidden: list configmaps"));
}

TEST_F(ConfigMap, WhatIsMissingOrWrongIsRefusedAndToldOnce) {
  struct Case {
    std::vector<json> objects;
    const char* said;
  };
  const std::vector<Case> cases{
      {{}, "ConfigMap gpu/settings does not exist"},
      {{config_map("7", {{"other", "x"}})}, "ConfigMap gpu/settings has no key config.yaml"},
      {{with_yaml("7", "map_entries: 4096\nlog_levle: info\n")}, "gpu/settings:2"},
      {{with_yaml("7", "map_entries: [\n")}, "gpu/settings:"},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.said);
    log_.str("");
    LiveConfig settings({}, {});
    answer(one.objects);
    begin_with_config_map(settings, transport_, kWhere);
    EXPECT_EQ(settings.start(), config::Config{});
    EXPECT_FALSE(settings.status().accepted);
    EXPECT_THAT(settings.status().error, HasSubstr(one.said));
    take_config_map(settings, kWhere,
                    one.objects.empty() ? ConfigMapState{} : *parse_config_map(one.objects[0]));
    EXPECT_THAT(lines(), SizeIs(1));
    EXPECT_THAT(lines(), Each(HasSubstr(one.said)));
  }
}

}  // namespace
}  // namespace ingero::app
