// SPDX-License-Identifier: Apache-2.0
// What queries can use that SQLite lacks, and what they may cost.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "base/memory_limit.h"
#include "recorder_test.h"

namespace ingero::record {
namespace {

using testing::HasSubstr;

class SqlFunctions : public RecorderTest {
 protected:
  void SetUp() override { make()->finish("interrupted"); }
  std::string error(const std::string& sql) {
    const auto recording = Recording::open({path_});
    TextRows rows;
    const auto done = run_sql(*recording, sql, rows, {});
    return done ? "none" : done.error().message;
  }
};

TEST_F(SqlFunctions, PercentileLiesBetweenTheTwoNearestValues) {
  const std::string values = " FROM (SELECT column1 AS v FROM (VALUES (4), (1), (NULL), (3), (2)))";
  EXPECT_EQ(value(path_, "SELECT percentile(v, 0)" + values), "1.0");
  EXPECT_EQ(value(path_, "SELECT percentile(v, 50)" + values), "2.5");
  EXPECT_EQ(value(path_, "SELECT percentile(v, 100)" + values), "4.0");
  EXPECT_EQ(value(path_, "SELECT percentile(v, 99)" + values), "3.97");
}

TEST_F(SqlFunctions, PercentileOfNothingIsNull) {
  EXPECT_EQ(value(path_, "SELECT percentile(duration_ns, 50) FROM nccl_events"), "NULL");
}

TEST_F(SqlFunctions, PercentileRefusesWhatIsNoNumber) {
  EXPECT_THAT(error("SELECT percentile('a', 50)"), HasSubstr("not a number"));
  EXPECT_THAT(error("SELECT percentile(1, 101)"), HasSubstr("0 to 100"));
  EXPECT_THAT(error("SELECT percentile(1, NULL)"), HasSubstr("0 to 100"));
}

TEST(MemoryLimit, IsReadFromTheTreeOfEitherVersion) {
  const TestFolder folder;
  const std::string root = folder.file("");
  EXPECT_EQ(container_memory_limit(root), std::nullopt);
  std::filesystem::create_directory(folder.file("memory"));
  std::ofstream(folder.file("memory/memory.limit_in_bytes")) << "9223372036854771712\n";
  EXPECT_EQ(container_memory_limit(root), std::nullopt) << "what v1 has where there is no limit";
  std::ofstream(folder.file("memory/memory.limit_in_bytes")) << "536870912\n";
  EXPECT_EQ(container_memory_limit(root), 536870912U);
  std::ofstream(folder.file("memory.max")) << "max\n";
  EXPECT_EQ(container_memory_limit(root), 536870912U);
  std::ofstream(folder.file("memory.max")) << "1048576\n";
  EXPECT_EQ(container_memory_limit(root), 1048576U);
}

}  // namespace
}  // namespace ingero::record
