// SPDX-License-Identifier: Apache-2.0
// What there is room for on the node, and what a restarted agent goes on with.
#include <gmock/gmock.h>

#include "pod_recordings_test.h"
#include "record/database.h"

namespace ingero::app {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using namespace std::chrono_literals;

TEST_F(PodRecordingsTest, WhatDoesNotFitIntoTheBudgetIsRefusedAndBeginsWhenThereIsRoom) {
  run_container("a", 1, wish(60));
  run_container("b", 2, wish(60));
  look();
  auto all = recordings_->status();
  EXPECT_EQ(all[0].state, "Recording");
  EXPECT_EQ(all[1].state, "Refused");
  EXPECT_THAT(all[1].message, HasSubstr("60MiB of the node's 100MiB"));
  EXPECT_THAT(streamed_, ElementsAre("uid-a"));
  run_container("a", 1, std::nullopt);
  look_until_settled();
  EXPECT_THAT(streamed_, ElementsAre("uid-b"));
}

TEST_F(PodRecordingsTest, WhatIsLargerThanTheWholeBudgetIsRefusedWithBothSizes) {
  run_container("a", 1, wish(200));
  look();
  EXPECT_EQ(only().state, "Refused");
  EXPECT_THAT(only().message, HasSubstr("it may take 200MiB, and all of the node's recordings "
                                        "100MiB (setting recordings.budget)"));
  EXPECT_THAT(only().message, Not(HasSubstr("promised")));
}

TEST_F(PodRecordingsTest, EndedRecordingsMakeRoomForNewOnes) {
  run_container("a", 1, wish(60));
  look();
  call(1, 100'000);
  run_container("a", 1, std::nullopt);
  look_until_settled();
  const std::string old = only().files.path;
  ASSERT_GT(std::filesystem::file_size(old), kMiB);
  config_.budget = 60 * kMiB;
  recordings_->set_config(config_);
  run_container("b", 2, wish(60));
  look();
  EXPECT_THAT(streamed_, ElementsAre("uid-b"));
  EXPECT_FALSE(std::filesystem::exists(old));
}

TEST_F(PodRecordingsTest, WithoutABudgetOrRoomNothingIsRecorded) {
  config_.budget = 0;
  recordings_->set_config(config_);
  run_container("a", 1, wish());
  look();
  EXPECT_EQ(only().state, "Refused");
  EXPECT_THAT(only().message, HasSubstr("recordings.budget is 0"));
  config_.budget = 100 * kMiB;
  config_.keep_free_percent = 99;
  recordings_->set_config(config_);
  EXPECT_EQ(only().state, "Refused");
  EXPECT_THAT(only().message, HasSubstr("keep_free_percent"));
  EXPECT_FALSE(std::filesystem::exists(config_.directory));
}

TEST_F(PodRecordingsTest, ARefusedRecordingRemovesNothing) {
  run_container("a", 1, wish(60));
  look();
  call(1, 1000);
  run_container("a", 1, std::nullopt);
  look_until_settled();
  const std::string old = only().files.path;
  config_.budget = 60 * kMiB;
  config_.keep_free_percent = 99;
  recordings_->set_config(config_);
  run_container("b", 2, wish(60));
  look();
  EXPECT_THAT(streamed_, IsEmpty());
  EXPECT_TRUE(std::filesystem::exists(old));
}

TEST_F(PodRecordingsTest, ARestartedAgentGoesOnWithTheNextFileUntilTheSameEnd) {
  auto spec = wish(20);
  spec.files = 2;
  run_container("a", 1, spec);
  look();
  const auto before = only();
  call(1, 3);
  begin_agent();
  pass(30s);
  look();
  EXPECT_EQ(only().state, "Recording");
  EXPECT_EQ(only().started_unix_s, before.started_unix_s);
  EXPECT_EQ(only().files.files, 2U);
  EXPECT_THAT(only().files.path, HasSubstr("-002.db"));
  EXPECT_EQ(rows(before.files.path), "3");
  pass(31s);
  look_until_settled();
  EXPECT_EQ(only().message, "duration over");
  begin_agent();
  look();
  EXPECT_EQ(only().state, "Ended");
  EXPECT_EQ(only().message, "duration over");
  EXPECT_THAT(streamed_, IsEmpty());
}

TEST_F(PodRecordingsTest, ARestartedAgentKeepsTheFilesOfARecordingThatMayTakeTheWholeBudget) {
  config_.budget = 20 * kMiB;
  auto spec = wish(20);
  spec.files = 2;
  run_container("a", 1, spec);
  begin_agent();
  look();
  const std::string before = only().files.path;
  call(1, 3);
  begin_agent();
  look();
  EXPECT_EQ(only().state, "Recording");
  EXPECT_EQ(only().files.files, 2U);
  EXPECT_EQ(rows(before), "3");
}

TEST_F(PodRecordingsTest, ARestartedAgentDoesNotBeginAFullRecordingOfOneFileAgain) {
  run_container("a", 1, wish(1));
  look();
  for (int i = 0; i < 4000 && only().state == "Recording" && only().message.empty(); ++i) {
    call(1, 1000);
    std::this_thread::sleep_for(1ms);
    look();
  }
  look_until_settled();
  ASSERT_EQ(only().state, "Ended") << "it is full";
  const std::uint64_t bytes = only().files.bytes;
  begin_agent();
  look();
  EXPECT_EQ(only().state, "Ended");
  EXPECT_THAT(only().message, HasSubstr("budget_reached"));
  EXPECT_EQ(only().files.bytes, bytes);
  EXPECT_LE(bytes, kMiB);
  EXPECT_THAT(streamed_, IsEmpty());
}

struct EarlierEnd {
  const char* end_reason;  ///< in SQL, of the file that an agent has left
  std::uint32_t files;
  const char* state;  ///< with the next agent
};

TEST_F(PodRecordingsTest, ARestartedAgentGoesOnUnlessTheFileSaysThatItsRecordingWasOver) {
  const EarlierEnd cases[] = {{"NULL", 2, "Recording"},  // killed
                              {"'the next file goes on'", 2, "Recording"},
                              {"'budget_reached'", 2, "Recording"},  // ended before the next file
                              {"'budget_reached'", 1, "Ended"},
                              {"'disk_full'", 2, "Ended"},
                              {"'no policy asks for it any more'", 2, "Ended"}};
  int number = 0;
  for (const EarlierEnd& c : cases) {
    containers_.clear();
    auto spec = wish(10, std::to_string(++number));
    spec.files = c.files;
    run_container("a", 1, spec);
    begin_agent();
    look();
    const std::string path = only().files.path;
    recordings_->stop();
    sqlite3* raw = nullptr;
    ASSERT_EQ(sqlite3_open(path.c_str(), &raw), SQLITE_OK);
    const record::DatabaseHandle database(raw);
    const std::string sql = std::string("UPDATE recording SET end_reason = ") + c.end_reason;
    ASSERT_TRUE(record::execute(raw, sql, "change end_reason"));
    begin_agent();
    look();
    EXPECT_EQ(only().state, c.state) << c.end_reason << " of " << c.files;
  }
}

}  // namespace
}  // namespace ingero::app
