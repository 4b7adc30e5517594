// SPDX-License-Identifier: Apache-2.0
// Settings that change while the agent runs, and the file they come from.
#include "app/live_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <boost/asio/io_context.hpp>
#include <filesystem>
#include <fstream>
#include <thread>

#include "app/settings_source.h"

namespace ingero::app {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using namespace std::chrono_literals;

TEST(LiveConfig, TakesAWholeTextOrNothingOfIt) {
  LiveConfig settings({}, {});
  std::vector<std::uint32_t> applied;
  settings.set_applier([&](const config::Config& config) {
    applied.push_back(config.max_series);
    return Status{};
  });
  EXPECT_TRUE(settings.take("max_series: 500\n", "ns/cm", "1"));
  const auto refused = settings.take("max_series: 600\nlog_levle: info\n", "ns/cm", "2");
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(), HasSubstr("ns/cm:2"));
  EXPECT_EQ(settings.config().max_series, 500u);
  EXPECT_FALSE(settings.status().accepted);
  EXPECT_EQ(settings.status().version, "1") << "what is in force";
  EXPECT_TRUE(settings.take("max_series: 700\n", "ns/cm", "3"));
  EXPECT_TRUE(settings.status().accepted);
  EXPECT_THAT(applied, ElementsAre(500u, 700u));
}

TEST(LiveConfig, TheHashIsOfTheSettingsInForceAndNotOfTheirText) {
  LiveConfig one({}, {}), other({}, {});
  const std::string defaults = one.status().hash;
  EXPECT_EQ(defaults.size(), 16U);
  EXPECT_TRUE(one.take("max_series: 500\nlog_level: debug\n", "ns/cm", "1"));
  EXPECT_TRUE(other.take("# the same\nlog_level: debug\nmax_series: 500\n", "a file", "77"));
  EXPECT_NE(one.status().hash, defaults);
  EXPECT_EQ(one.status().hash, other.status().hash);
  EXPECT_FALSE(one.take("max_series: none\n", "ns/cm", "2"));
  EXPECT_EQ(one.status().hash, other.status().hash) << "what was refused is not in force";
}

TEST(LiveConfig, WhatNeedsARestartIsNotInTheHashBeforeIt) {
  LiveConfig settings({}, {});
  settings.start();
  const std::string before = settings.status().hash;
  EXPECT_TRUE(settings.take("map_entries: 4096\n", "ns/cm", "1"));
  EXPECT_THAT(settings.status().waiting_for_restart, ElementsAre("map_entries"));
  EXPECT_EQ(settings.status().hash, before);
}

TEST(LiveConfig, WhatCannotBeAppliedIsRefusedAsAWhole) {
  LiveConfig settings({}, {});
  settings.set_applier([](const config::Config&) {
    return Status(fail({"listen", ":1", "in use", ""}));
  });
  EXPECT_FALSE(settings.take("listen_address: ':1'\nmax_series: 500\n", "f", "1"));
  EXPECT_EQ(settings.config(), config::Config{});
  EXPECT_THAT(settings.status().error, HasSubstr("in use"));
}

TEST(LiveConfig, FlagsWinOverEveryText) {
  LiveConfig settings({}, [](config::Config& config) {
    config.log_level = LogLevel::debug;
    return Status{};
  });
  EXPECT_TRUE(settings.take("log_level: error\nmax_series: 500\n", "f", "1"));
  EXPECT_EQ(settings.config().log_level, LogLevel::debug);
  EXPECT_EQ(settings.config().max_series, 500u);
}

TEST(LiveConfig, SettingsThatNeedARestartAreNamed) {
  LiveConfig settings({}, {});
  settings.start();
  EXPECT_TRUE(settings.take("map_entries: 4096\n", "f", "1"));
  EXPECT_THAT(settings.status().waiting_for_restart, ElementsAre("map_entries"));
  EXPECT_TRUE(settings.take("map_entries: 4096\nopen_method: path\n", "f", "2"));
  EXPECT_THAT(settings.status().waiting_for_restart, ElementsAre("map_entries", "open_method"));
  EXPECT_TRUE(settings.take("open_method: path\n", "f", "3"));
  EXPECT_THAT(settings.status().waiting_for_restart, ElementsAre("open_method"))
      << "what is as at the start waits for nothing";
}

TEST(LiveConfig, SettingsFromBeforeTheStartWaitForNothing) {
  LiveConfig settings({}, {});
  EXPECT_TRUE(settings.take("map_entries: 4096\n", "f", "1"));
  EXPECT_EQ(settings.start().map_entries, 4096u);
  EXPECT_THAT(settings.status().waiting_for_restart, IsEmpty());
  EXPECT_TRUE(settings.take("map_entries: 16384\n", "f", "2"));
  EXPECT_THAT(settings.status().waiting_for_restart, ElementsAre("map_entries"));
}

TEST(LiveConfig, TheVersionInForceChangesNothing) {
  LiveConfig settings({}, {});
  int applied = 0;
  settings.set_applier([&](const config::Config&) {
    ++applied;
    return Status{};
  });
  EXPECT_TRUE(settings.take("max_series: 500\n", "f", "1"));
  EXPECT_TRUE(settings.take("max_series: 500\n", "f", "1"));
  EXPECT_EQ(settings.status().reloads, 1u);
  settings.refuse("f", "gone");
  EXPECT_TRUE(settings.take("max_series: 500\n", "f", "1"));
  EXPECT_TRUE(settings.status().accepted) << "it is back";
  EXPECT_TRUE(settings.take("max_series: 600\n", "g", "1"));
  EXPECT_EQ(settings.config().max_series, 600u) << "another source counts for itself";
  EXPECT_EQ(applied, 2);
}

/// A file in a folder of its own, followed by settings.
class FileSource : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string folder = "/tmp/ingero-config-XXXXXX";
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    folder_ = folder;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
  }
  /// Lets the source work for a while.
  void run(std::chrono::milliseconds time = 400ms) {
    io_.restart();
    io_.run_for(time);
  }

  std::filesystem::path folder_;
  boost::asio::io_context io_;
  LiveConfig settings_{{}, {}};
};

TEST_F(FileSource, FollowsWritesRenamesAndABadFile) {
  write("a.yaml", "max_series: 500\n");
  ConfigFileSource source(io_, settings_, folder_ / "a.yaml");
  ASSERT_TRUE(source.start());
  EXPECT_EQ(settings_.config().max_series, 500u);
  write("a.yaml", "max_series: 600\n");
  run();
  EXPECT_EQ(settings_.config().max_series, 600u);
  write("new", "max_series: 700\n");
  std::filesystem::rename(folder_ / "new", folder_ / "a.yaml");
  run();
  EXPECT_EQ(settings_.config().max_series, 700u);
  write("a.yaml", "max_series: [\n");
  run();
  EXPECT_EQ(settings_.config().max_series, 700u);
  EXPECT_FALSE(settings_.status().accepted);
}

TEST_F(FileSource, KeepsTheLastGoodSettingsWhileTheFileIsGone) {
  write("a.yaml", "max_series: 500\n");
  ConfigFileSource source(io_, settings_, folder_ / "a.yaml");
  ASSERT_TRUE(source.start());
  std::filesystem::remove(folder_ / "a.yaml");
  run();
  EXPECT_EQ(settings_.config().max_series, 500u);
  EXPECT_FALSE(settings_.status().accepted);
  write("a.yaml", "max_series: 500\n");
  run();
  EXPECT_TRUE(settings_.status().accepted);
}

TEST_F(FileSource, FollowsTheLinksOfAMountedConfigMap) {
  std::filesystem::create_directory(folder_ / "1");
  std::filesystem::create_directory(folder_ / "2");
  write("1/config.yaml", "max_series: 500\n");
  write("2/config.yaml", "max_series: 600\n");
  std::filesystem::create_symlink("1", folder_ / "..data");
  std::filesystem::create_symlink("..data/config.yaml", folder_ / "config.yaml");
  ConfigFileSource source(io_, settings_, folder_ / "config.yaml");
  ASSERT_TRUE(source.start());
  std::filesystem::create_symlink("2", folder_ / "..data_tmp");
  std::filesystem::rename(folder_ / "..data_tmp", folder_ / "..data");
  run();
  EXPECT_EQ(settings_.config().max_series, 600u);
}

TEST_F(FileSource, AWriterThatTakesItsTimeIsWaitedFor) {
  write("a.yaml", "max_series: 500\n");
  ConfigFileSource source(io_, settings_, folder_ / "a.yaml");
  ASSERT_TRUE(source.start());
  std::ofstream slow(folder_ / "a.yaml");
  slow << "max_series: 6" << std::flush;
  run(40ms);
  slow << "00\n" << std::flush;
  slow.close();
  run();
  EXPECT_EQ(settings_.config().max_series, 600u);
  EXPECT_EQ(settings_.status().reloads, 2u) << "the half line was never read";
}

}  // namespace
}  // namespace ingero::app
