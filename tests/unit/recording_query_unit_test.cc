// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "cli/page_output.h"
#include "cli/query_output.h"
#include "record/report.h"
#include "record/time_line.h"
#include "record_test_file.h"

namespace ingero::record {
namespace {

using cli::QueryFormat;
using testing::ElementsAre;
using testing::HasSubstr;
using Row = std::vector<std::string>;

class RecordingTest : public testing::Test {
 protected:
  std::string make(const std::string& name, const std::string& host, int calls) {
    RecorderOptions options = options_for(folder_.file(name));
    options.facts.host = host;
    auto recorder = Recorder::create(std::move(options), clock_);
    EXPECT_TRUE(recorder) << recorder.error().message();
    for (int i = 0; i < calls; ++i) (*recorder)->add(nccl_call());
    (*recorder)->finish("interrupted");
    return folder_.file(name);
  }

  SqlError error_of(const std::string& sql, const Watch& watch = {}) {
    const auto recording = Recording::open({path_});
    EXPECT_TRUE(recording);
    TextRows rows;
    const auto done = run_sql(*recording, sql, rows, watch);
    EXPECT_FALSE(done) << sql;
    return done ? SqlError{} : done.error();
  }

  TestFolder folder_;
  Clock clock_;
  std::string path_ = make("a.db", "host-a", 3);
};

std::string printed(QueryFormat format, const std::string& file, const std::string& sql) {
  const auto recording = Recording::open({file});
  EXPECT_TRUE(recording);
  std::string text;
  const auto sink = cli::make_query_output({format, false, false}, [&](std::string_view part) {
    text += part;
    return true;
  });
  const auto done = run_sql(*recording, sql, *sink, {});
  EXPECT_TRUE(done) << done.error().message;
  return text;
}

constexpr const char* kSomeValues =
    "SELECT 1 AS n, 2.5 AS r, 'a,\"b|' AS t, NULL AS empty, x'00ff' AS b UNION ALL "
    "SELECT 100, -1.0, 'line' || char(10) || 'feed', NULL, x''";

TEST_F(RecordingTest, TableAlignsNumbersToTheRight) {
  EXPECT_EQ(printed(QueryFormat::kTable, path_, kSomeValues),
            "  n     r  t             empty  b\n"
            "---  ----  ------------  -----  -------\n"
            "  1   2.5  a,\"b|         NULL   x'00ff'\n"
            "100  -1.0  line\\x0afeed  NULL   x''\n");
}

TEST_F(RecordingTest, CsvQuotesWhatNeedsIt) {
  EXPECT_EQ(printed(QueryFormat::kCsv, path_, kSomeValues),
            "n,r,t,empty,b\r\n1,2.5,\"a,\"\"b|\",,00ff\r\n100,-1.0,\"line\nfeed\",,\r\n");
  EXPECT_EQ(printed(QueryFormat::kCsv, path_, "SELECT NULL AS a, '' AS b, 1 AS c"),
            "a,b,c\r\n,\"\",1\r\n");
}

TEST_F(RecordingTest, JsonIsAnArrayOfObjects) {
  const auto rows = nlohmann::json::parse(printed(QueryFormat::kJson, path_, kSomeValues));
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(
      rows[0],
      (nlohmann::json{{"n", 1}, {"r", 2.5}, {"t", "a,\"b|"}, {"empty", nullptr}, {"b", "00ff"}}));
  EXPECT_EQ(rows[1]["t"], "line\nfeed");
  EXPECT_EQ(nlohmann::json::parse(printed(QueryFormat::kJson, path_, "SELECT 1 WHERE 0")).size(),
            0U);
  EXPECT_EQ(nlohmann::json::parse(printed(QueryFormat::kJson, path_, "SELECT 9e999 AS x"))[0]["x"],
            "Inf");
}

TEST_F(RecordingTest, MarkdownEscapesBars) {
  EXPECT_EQ(printed(QueryFormat::kMarkdown, path_, "SELECT 'a|b' AS \"x|y\", 2 AS n"),
            "| x\\|y | n |\n|---|---|\n| a\\|b | 2 |\n");
}

TEST_F(RecordingTest, SeveralStatementsGiveSeveralResults) {
  EXPECT_EQ(printed(QueryFormat::kMarkdown, path_, "SELECT 1 AS a; -- comment\nSELECT 2 AS b;\n"),
            "| a |\n|---|\n| 1 |\n\n| b |\n|---|\n| 2 |\n");
}

TEST_F(RecordingTest, WritingIsRefused) {
  for (const char* sql : {"DELETE FROM nccl_calls",
                          "INSERT INTO losses VALUES ('a', 1, '')",
                          "UPDATE recording SET host = 'x'",
                          "DROP TABLE losses",
                          "CREATE TABLE x (y)",
                          "CREATE TEMP TABLE x (y)",
                          "CREATE TEMP VIEW x AS SELECT 1",
                          "ATTACH 'x.db' AS x",
                          "DETACH main",
                          "PRAGMA query_only = OFF",
                          "PRAGMA journal_mode = DELETE",
                          "PRAGMA writable_schema = ON",
                          "VACUUM",
                          "VACUUM INTO '/tmp/ingero-x'",
                          "BEGIN",
                          "REINDEX",
                          "ANALYZE",
                          "SELECT load_extension('x')",
                          "UPDATE sqlite_master SET sql = ''",
                          "SAVEPOINT a",
                          "CREATE VIRTUAL TABLE temp.x USING fts5(a)"})
    EXPECT_FALSE(error_of(sql).message.empty()) << sql;
  EXPECT_EQ(value(path_, "SELECT COUNT(*) FROM nccl_events"), "3");
}

TEST_F(RecordingTest, ReadingTheSchemaIsAllowed) {
  EXPECT_EQ(value(path_, "SELECT name FROM pragma_table_info('losses') LIMIT 1"), "reason");
  EXPECT_EQ(value(path_, "SELECT value FROM json_each('[7]')"), "7");
  EXPECT_EQ(query({path_}, "PRAGMA table_info(losses)").size(), 3U);
}

TEST_F(RecordingTest, ErrorsPointAtThePlace) {
  const std::string sql = "SELECT op,\n  duration FROM nccl_events";
  const SqlError error = error_of(sql);
  EXPECT_EQ(error.message, "no such column: duration");
  EXPECT_EQ(error.offset, 13);
  EXPECT_EQ(cli::render_sql_error(error.message, sql, error.offset),
            "no such column: duration\n  line 2:   duration FROM nccl_events\n            ^\n");
  EXPECT_EQ(error_of("SELECT 1; SELEKT 2").offset, 10);
  EXPECT_EQ(error_of("  ").message, "there is no statement in it");
}

TEST_F(RecordingTest, TheWatchEndsAQuery) {
  const SqlError error = error_of(
      "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT COUNT(*) FROM n",
      [](std::uint64_t) { return true; });
  EXPECT_TRUE(error.interrupted);
}

TEST_F(RecordingTest, SeveralFilesAreOneDatabaseWithANodeColumn) {
  const std::string other = make("b.db", "host-b", 2), twin = make("c.db", "host-a", 1);
  EXPECT_THAT(
      query({path_, other, twin},
            "SELECT node, COUNT(*) FROM nccl_events GROUP BY node ORDER BY 2 DESC"),
      ElementsAre(Row{"host-a", "3"}, Row{"host-b", "2"}, Row{"host-a (" + twin + ")", "1"}));
  EXPECT_THAT(query({path_, other}, "SELECT node, host FROM recording"),
              ElementsAre(Row{"host-a", "host-a"}, Row{"host-b", "host-b"}));
  EXPECT_THAT(query({path_, other}, "SELECT COUNT(*) FROM collectives"), ElementsAre(Row{"5"}));
}

TEST_F(RecordingTest, ColumnsThatAnOlderFileHasNotAreNullBesideANewerOne) {
  const std::string older = make("older.db", "host-b", 1);
  sqlite3* database = nullptr;
  ASSERT_EQ(sqlite3_open(older.c_str(), &database), SQLITE_OK);
  EXPECT_EQ(sqlite3_exec(database,
                         "ALTER TABLE sched_events DROP COLUMN state; INSERT INTO sched_events "
                         "(timestamp_ns, duration_ns, event) VALUES (1, 2, 'off_cpu')",
                         nullptr, nullptr, nullptr),
            SQLITE_OK);
  sqlite3_close(database);
  EXPECT_THAT(query({path_, older}, "SELECT node, duration_ns, state FROM sched_events"),
              ElementsAre(Row{"host-b", "2", "NULL"}));
}

TEST_F(RecordingTest, MoreFilesThanSqliteTakesAreRefused) {
  const auto recording = Recording::open(std::vector<std::string>(11, path_));
  ASSERT_FALSE(recording);
  EXPECT_THAT(recording.error().message(), HasSubstr("11 files"));
}

TEST_F(RecordingTest, NamesWithOddCharactersOpen) {
  const std::string odd = make("a b?c#d%20'\"&=.db", "host", 1);
  EXPECT_EQ(value(odd, "SELECT COUNT(*) FROM nccl_events"), "1");
}

TEST_F(RecordingTest, WhatIsNoRecordingIsRefused) {
  const auto refused = [&](const std::string& path) {
    const auto recording = Recording::open({path});
    EXPECT_FALSE(recording) << path;
    return recording ? "" : recording.error().message();
  };
  EXPECT_THAT(refused(folder_.file("none")), HasSubstr("No such file"));
  EXPECT_THAT(refused("/tmp"), HasSubstr("not a regular file"));
  EXPECT_THAT(refused("/dev/zero"), HasSubstr("not a regular file"));
  const std::string empty = folder_.file("empty");
  std::ofstream{empty};
  EXPECT_THAT(refused(empty), HasSubstr("not a recording"));
  const std::string text = folder_.file("text");
  std::ofstream{text} << std::string(5000, 'x');
  EXPECT_THAT(refused(text), HasSubstr("not a database"));
  sqlite3* raw = nullptr;
  sqlite3_open(folder_.file("other.db").c_str(), &raw);
  const DatabaseHandle other(raw);
  ASSERT_TRUE(execute(raw, "CREATE TABLE a (b)", "make"));
  EXPECT_THAT(refused(folder_.file("other.db")), HasSubstr("not a recording of ingero"));
  ASSERT_TRUE(execute(raw, "PRAGMA application_id = 1231972197; PRAGMA user_version = 99", "make"));
  EXPECT_THAT(refused(folder_.file("other.db")), HasSubstr("newer"));
  ASSERT_TRUE(execute(raw,
                      "PRAGMA user_version = 1; CREATE TRIGGER t AFTER INSERT ON a BEGIN "
                      "SELECT 1; END",
                      "make"));
  EXPECT_THAT(refused(folder_.file("other.db")), HasSubstr("no recording has"));
}

/// Bytes of a good recording changed at random places, and cut off: an error or an answer, never a crash.
TEST_F(RecordingTest, DamagedFilesAreErrorsAndNoCrash) {
  std::ifstream input(path_, std::ios::binary);
  const std::string good((std::istreambuf_iterator<char>(input)), {});
  std::mt19937 random(1);
  int refused = 0;
  for (int round = 0; round < 300; ++round) {
    std::string bad = good;
    for (int i = 0; i < 1 + round % 50; ++i)
      bad[random() % bad.size()] = static_cast<char>(random());
    if (round % 5 == 0) bad.resize(random() % bad.size());
    const std::string path = folder_.file("bad.db");
    std::ofstream(path, std::ios::binary) << bad;
    const auto recording = Recording::open({path});
    if (!recording) {
      ++refused;
      continue;
    }
    for (const char* sql :
         {"SELECT * FROM nccl_events ORDER BY duration_ns", "SELECT * FROM collectives",
          "SELECT * FROM losses", "SELECT * FROM schema_comments", "SELECT * FROM sqlite_schema"}) {
      TextRows rows;
      static_cast<void>(run_sql(*recording, sql, rows, [](std::uint64_t) { return false; }));
    }
    static_cast<void>(read_comments(*recording));
    if (const auto page = make_report(*recording, {})) {
      EXPECT_FALSE(cli::render_page(*page, 80, false).empty());
      EXPECT_FALSE(cli::render_page_html(*page).empty());
    }
    static_cast<void>(export_time_line(*recording, [](std::string_view) { return true; }, {}));
  }
  EXPECT_GT(refused, 30);
}

}  // namespace
}  // namespace ingero::record
