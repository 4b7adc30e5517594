// SPDX-License-Identifier: Apache-2.0
// Files that were made to keep the reader busy for ever: an error, and never a wait. Where a test would
// hang, the alarm ends it.
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>

#include "record/report.h"
#include "record/time_line.h"
#include "record_test_file.h"

namespace ingero::record {
namespace {

using testing::HasSubstr;

constexpr unsigned kLongestSeconds = 60;
constexpr const char* kEndless =
    "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT ";
const bool kEndsRead = true;

class HostileRecordingTest : public testing::Test {
 protected:
  void SetUp() override { ::alarm(kLongestSeconds); }
  void TearDown() override { ::alarm(0); }

  std::string make(const std::string& name) {
    auto recorder = Recorder::create(options_for(folder_.file(name)), clock_);
    EXPECT_TRUE(recorder) << recorder.error().message();
    for (int i = 0; i < 3; ++i) (*recorder)->add(nccl_call());
    (*recorder)->finish("interrupted");
    return folder_.file(name);
  }
  std::string make(const std::string& name, const std::string& sql) {
    const std::string path = make(name);
    sqlite3* raw = nullptr;
    EXPECT_EQ(sqlite3_open(path.c_str(), &raw), SQLITE_OK);
    const DatabaseHandle database(raw);
    // A program of an attacker minds no rule.
    sqlite3_db_config(raw, SQLITE_DBCONFIG_DEFENSIVE, 0, nullptr);
    const auto changed = execute(raw, sql, "change");
    EXPECT_TRUE(changed) << changed.error().message();
    return path;
  }
  static std::string refused(const std::vector<std::string>& paths) {
    const auto recording = Recording::open(paths);
    return recording ? "(it was opened)" : recording.error().message();
  }
  /// A view with the columns of `table` that looks for its first row without an end.
  static std::string endless_view(const SchemaTable& table, const std::string& name) {
    std::string columns;
    for (const SchemaColumn& column : table.columns)
      columns += (columns.empty() ? "i AS " : ", i AS ") + std::string(column.name);
    return "CREATE VIEW " + name + " AS " + kEndless + columns + " FROM n WHERE i < 0;";
  }

  TestFolder folder_;
  Clock clock_;
};

TEST_F(HostileRecordingTest, AViewInPlaceOfAnyTableIsRefusedAndNotRun) {
  int tables = 0;
  const std::string good = make("good.db");
  for (const SchemaTable& table : schema()) {
    if (table.is_view()) continue;
    const std::string name(table.name);
    const std::string bad =
        make(name + ".db", "DROP TABLE " + name + ";" + endless_view(table, name));
    const std::string expected = "in it " + name + " is no table, but a view";
    EXPECT_THAT(refused({bad}), HasSubstr(expected));
    EXPECT_THAT(refused({good, bad}), HasSubstr(expected));
    ++tables;
  }
  EXPECT_EQ(tables, 14);
}

TEST_F(HostileRecordingTest, CapitalLettersInTheNameOfAViewHideNothing) {
  const auto table = std::find_if(schema().begin(), schema().end(),
                                  [](const auto& known) { return known.name == "recording"; });
  const std::string bad = make("a.db", "DROP TABLE recording;" + endless_view(*table, "Recording"));
  EXPECT_THAT(refused({bad}), HasSubstr("in it recording is no table"));
}

TEST_F(HostileRecordingTest, ComputedColumnsAreRefused) {
  const std::string stored = make("stored.db",
                                  "DROP TABLE losses; CREATE TABLE losses (reason TEXT, count "
                                  "INTEGER, meaning AS (hex(zeroblob(count))) STORED)");
  const std::string computed = make("virtual.db",
                                    "DROP TABLE losses; CREATE TABLE losses (reason TEXT, count "
                                    "INTEGER, meaning AS (hex(zeroblob(count))))");
  EXPECT_THAT(refused({stored}), HasSubstr("losses has computed columns"));
  EXPECT_THAT(refused({computed}), HasSubstr("losses has computed columns"));
}

TEST_F(HostileRecordingTest, ASchemaThatIsTooLongIsNotReadToItsEnd) {
  const std::string bad = make("a.db",
                               "PRAGMA writable_schema = ON; WITH RECURSIVE n (i) AS (SELECT 1 "
                               "UNION ALL SELECT i + 1 FROM n "
                               "LIMIT 60000) INSERT INTO sqlite_schema SELECT 'view', 'v' || i, "
                               "'v' || i, 0, 'CREATE VIEW v' "
                               "|| i || ' AS SELECT 1' FROM n");
  EXPECT_THAT(refused({bad}), HasSubstr("takes longer to open than any recording"));
  EXPECT_THAT(refused({make("good.db"), bad}),
              HasSubstr("takes longer to open than any recording"));
}

/// Views are run for who names them in SQL, and end when he says so; the rest of the program has no use
/// for them.
TEST_F(HostileRecordingTest, AnEndlessViewIsRunForNobodyButWhoAsksForIt) {
  std::string sql;
  for (const SchemaTable& table : schema())
    if (table.is_view())
      sql += "DROP VIEW " + std::string(table.name) + ";" +
             endless_view(table, std::string(table.name));
  const std::string bad = make("bad.db", sql);
  for (const std::vector<std::string>& files :
       {std::vector{bad}, std::vector{make("good.db"), bad}}) {
    const auto recording = Recording::open(files);
    ASSERT_TRUE(recording) << recording.error().message();
    EXPECT_TRUE(make_report(*recording, {}));
    EXPECT_TRUE(export_time_line(*recording, [](std::string_view) { return true; }, {}));
    EXPECT_TRUE(read_comments(*recording));
    TextRows rows;
    const auto done = run_sql(*recording, "SELECT * FROM nccl_events", rows,
                              [](std::uint64_t) { return kEndsRead; });
    ASSERT_FALSE(done);
    EXPECT_TRUE(done.error().interrupted);
  }
}

/// Rows that nobody counts: pages of a file can be linked so that there is no end of them.
TEST_F(HostileRecordingTest, AReadThatFindsNothingEndsWhenTheWatchSaysSo) {
  const std::string bad =
      make("a.db",
           "DROP INDEX tcp_events_event_time; "
           "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 100000) "
           "INSERT INTO tcp_events (timestamp_ns, event) SELECT i, 'x' FROM n");
  const auto recording = Recording::open({bad});
  ASSERT_TRUE(recording) << recording.error().message();
  int asked = 0;
  const Watch watch = [&](std::uint64_t) {
    ++asked;
    return kEndsRead;
  };
  const auto page = make_report(*recording, watch);
  ASSERT_FALSE(page);
  EXPECT_EQ(page.error().code & 0xff, SQLITE_INTERRUPT);
  EXPECT_EQ(asked, 1);
  const auto written = export_time_line(
      *recording, [](std::string_view) { return true; }, watch);
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code & 0xff, SQLITE_INTERRUPT);
  EXPECT_EQ(asked, 2);
  EXPECT_TRUE(make_report(*recording, {}));
}

}  // namespace
}  // namespace ingero::record
