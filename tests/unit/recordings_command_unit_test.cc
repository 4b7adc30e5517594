// SPDX-License-Identifier: Apache-2.0
// `ingero recordings`, on stores with real recordings and with files that are none.
#include "app/recordings_command.h"

#include <gmock/gmock.h>
#include <sqlite3.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "record_test_file.h"

namespace ingero::app {
namespace {

using record::TestFolder;
using record::TextRows;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class RecordingsCommandTest : public ::testing::Test {
 protected:
  /// The path of a file as the store names it; its folder is there.
  std::string place(const std::string& name) {
    const std::string path = folder_.file(name);
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    return path;
  }
  /// A recording of so many NCCL calls and one copy.
  std::string record(const std::string& name, int calls, const std::string& reason) {
    const std::string path = place(name);
    auto recorder = record::Recorder::create(record::options_for(path), clock_);
    if (!recorder) throw std::runtime_error(recorder.error().message());
    for (int i = 0; i < calls; ++i) (*recorder)->add(record::nccl_call());
    (*recorder)->add(record::cuda_call());
    if (!reason.empty()) (*recorder)->finish(reason);
    else kept_.push_back(std::move(*recorder));
    return path;
  }
  static void change(const std::string& path, const char* sql) {
    sqlite3* database = nullptr;
    ASSERT_EQ(sqlite3_open(path.c_str(), &database), SQLITE_OK);
    ASSERT_EQ(sqlite3_exec(database, sql, nullptr, nullptr, nullptr), SQLITE_OK)
        << sqlite3_errmsg(database);
    sqlite3_close(database);
  }
  std::vector<ListedRecording> list() const { return list_recordings(folder_.file("")).value(); }

  TestFolder folder_;
  Clock clock_{system_clock_source()};
  std::vector<std::unique_ptr<record::Recorder>> kept_;
};

constexpr const char* kFirst = "research/train-0/20261121T170042Z-1a2b3c4d-001.db";
constexpr const char* kSecond = "research/train-0/20261121T170042Z-1a2b3c4d-002.db";

TEST_F(RecordingsCommandTest, EachFileIsARowWithWhatItSaysAboutItself) {
  const std::string first = record(kFirst, 9, "the next file goes on");
  const std::string second = record(kSecond, 2, "duration over");
  change(first,
         "UPDATE recording SET started_ns = 1795280442000000000, "
         "ended_ns = 1795280500999999999");
  change(first,
         "UPDATE losses SET count = 5 WHERE reason = 'writer_behind'; "
         "UPDATE losses SET count = 700 WHERE reason = 'host_events_lost'; "
         "INSERT INTO losses VALUES ('call_stream_full', 11, ''), ('map_full', 1, '')");
  TextRows rows;
  print_recordings(list(), rows);
  EXPECT_THAT(rows.columns, ElementsAre("namespace", "pod", "file", "started", "ended",
                                        "end_reason", "calls", "lost", "bytes", "path", "error"));
  ASSERT_EQ(rows.rows.size(), 2u);
  EXPECT_THAT(rows.rows[0],
              ElementsAre("research", "train-0", "1", "2026-11-21T17:00:42Z",
                          "2026-11-21T17:01:40Z", "the next file goes on", "10", "16",
                          std::to_string(std::filesystem::file_size(first)), first, "NULL"));
  EXPECT_EQ(rows.rows[1][2], "2");
  EXPECT_EQ(rows.rows[1][5], "duration over");
  EXPECT_EQ(rows.rows[1][6], "3");
  EXPECT_EQ(rows.rows[1][7], "0");
}

TEST_F(RecordingsCommandTest, ARecordingThatGoesOnHasNoEnd) {
  record(kFirst, 1, "");
  const auto listed = list();
  ASSERT_EQ(listed.size(), 1u);
  EXPECT_EQ(listed[0].error, "");
  EXPECT_TRUE(listed[0].started_ns);
  EXPECT_FALSE(listed[0].ended_ns);
  EXPECT_EQ(listed[0].end_reason, "");
  EXPECT_GT(listed[0].file.bytes, 0u);
}

TEST_F(RecordingsCommandTest, AFileThatCannotBeReadIsARowWithTheError) {
  std::ofstream(place(kFirst)) << "this is no database, however long it may be";
  record(kSecond, 1, "duration over");
  std::ofstream(place("research/train-0/notes.txt")) << "of somebody else";
  TextRows rows;
  print_recordings(list(), rows);
  ASSERT_EQ(rows.rows.size(), 2u);
  EXPECT_THAT(rows.rows[0][10], HasSubstr("not a database"));
  EXPECT_THAT(std::vector(rows.rows[0].begin() + 3, rows.rows[0].begin() + 8),
              ElementsAre("NULL", "NULL", "NULL", "NULL", "NULL"));
  EXPECT_EQ(rows.rows[0][8], "43");
  EXPECT_EQ(rows.rows[1][10], "NULL");
}

TEST_F(RecordingsCommandTest, NothingThatAFileSaysIsTrusted) {
  change(record(kFirst, 1, "x"),
         "UPDATE recording SET started_ns = -5, ended_ns = 'soon', nccl_calls = x'00', "
         "end_reason = char(27) || '[2J' || replace(hex(zeroblob(500)), '0', 'y')");
  change(record(kSecond, 1, "x"), "DELETE FROM recording");
  change(record("research/train-1/20261121T170043Z-1a2b3c4d-001.db", 1, "x"),
         "DROP TABLE losses; CREATE VIEW losses AS WITH RECURSIVE n(i) AS "
         "(SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT 'disk_full' AS reason, 1 AS count FROM n "
         "WHERE i < 0");
  change(record("research/train-2/20261121T170044Z-1a2b3c4d-001.db", 1, "x"),
         "DROP TABLE recording; CREATE VIEW recording AS WITH RECURSIVE n(i) AS "
         "(SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT 'a' AS host FROM n WHERE i < 0");
  record("research/train-3/20261121T170045Z-1a2b3c4d-001.db", 4, "x");
  ::alarm(60);  // instead of no end
  const auto listed = list();
  ::alarm(0);
  ASSERT_EQ(listed.size(), 5u);
  EXPECT_EQ(listed[0].error, "");
  EXPECT_FALSE(listed[0].started_ns || listed[0].ended_ns);
  EXPECT_EQ(listed[0].end_reason.substr(0, 8), "\\x1b[2Jy");
  EXPECT_EQ(listed[0].end_reason.size(), 200u);
  EXPECT_EQ(listed[1].error, "it says nothing about itself");
  EXPECT_EQ(listed[2].error, "in it losses is no table, but a view");
  EXPECT_EQ(listed[3].error, "in it recording is no table, but a view");
  EXPECT_EQ(listed[4].error, "");
  EXPECT_EQ(listed[4].calls, 5);
}

TEST_F(RecordingsCommandTest, AFolderThatIsNotThereIsAnError) {
  EXPECT_THAT(list(), IsEmpty());
  const auto missing = list_recordings(folder_.file("missing"));
  ASSERT_FALSE(missing);
  EXPECT_THAT(missing.error().message(), HasSubstr("No such file"));
  EXPECT_EQ(run_recordings({folder_.file("missing"), "table"}), 2);
  EXPECT_EQ(run_recordings({folder_.file(""), "xml"}), 2);
  EXPECT_EQ(run_recordings({folder_.file(""), "csv"}), 0);
}

}  // namespace
}  // namespace ingero::app
