// SPDX-License-Identifier: Apache-2.0
// Where recordings of pods lie, and which of them make room for others.
#include "record/recording_store.h"

#include <gmock/gmock.h>

#include <fstream>

#include "record_test_file.h"

namespace ingero::record {
namespace {

constexpr std::int64_t kStart = 1795280442;  // 2026-11-21T17:00:42Z

class RecordingStoreTest : public testing::Test {
 protected:
  PodFile make(const std::string& pod, std::int64_t started, std::uint32_t number,
               std::size_t bytes, const std::string& request = "1a2b3c4d") {
    PodFile file;
    file.k8s_namespace = "research";
    file.pod = pod;
    file.started_unix_s = started;
    file.number = number;
    file.request = request;
    const auto named = store_.name(file);
    EXPECT_TRUE(named) << named.error().message();
    EXPECT_TRUE(store_.prepare(*named));
    std::ofstream(named->path) << std::string(bytes, 'x');
    return *named;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const PodFile& file : store_.list())
      names.push_back(file.path.substr(store_.folder().size() + 1));
    return names;
  }

  TestFolder folder_;
  RecordingStore store_{folder_.file("recordings")};
};

TEST_F(RecordingStoreTest, ANameIsReadBackAsItWasWritten) {
  const PodFile made = make("train-0", kStart, 7, 10);
  EXPECT_EQ(made.path,
            folder_.file("recordings/research/train-0/20261121T170042Z-1a2b3c4d-007.db"));
  std::ofstream(made.path + "-wal") << "12345";
  const auto files = store_.list();
  ASSERT_EQ(files.size(), 1U);
  EXPECT_EQ(files[0].path, made.path);
  EXPECT_EQ(files[0].started_unix_s, kStart);
  EXPECT_EQ(files[0].request, "1a2b3c4d");
  EXPECT_EQ(files[0].number, 7U);
  EXPECT_EQ(files[0].bytes, 15U);
  EXPECT_TRUE(files[0].is_of_same_recording(made));
}

TEST_F(RecordingStoreTest, OldestRecordingsAreFirstAndFilesOfOneInTheirOrder) {
  make("b", kStart + 1, 1000, 1);
  make("b", kStart + 1, 999, 1);
  make("a", kStart + 2, 1, 1);
  make("c", kStart, 1, 1);
  EXPECT_THAT(names(), testing::ElementsAre("research/c/20261121T170042Z-1a2b3c4d-001.db",
                                            "research/b/20261121T170043Z-1a2b3c4d-999.db",
                                            "research/b/20261121T170043Z-1a2b3c4d-1000.db",
                                            "research/a/20261121T170044Z-1a2b3c4d-001.db"));
}

TEST_F(RecordingStoreTest, WhatIsNotARecordingIsLeftAlone) {
  const PodFile made = make("a", kStart, 1, 100);
  const std::string folder = folder_.file("recordings/research/a/");
  for (const char* name :
       {"x.db", "20261121T170042Z-1a2b3c4d-.db", "20261121T170042Z-zzzzzzzz-001.db",
        "20261121T170042Z-1a2b3c4d-001.txt", "20261321T170042Z-1a2b3c4d-001.db"})
    std::ofstream(folder + name) << std::string(1000, 'x');
  std::filesystem::create_symlink("/etc/passwd", folder + "20261121T170042Z-1a2b3c4d-002.db");
  EXPECT_EQ(names().size(), 1U);
  EXPECT_EQ(store_.shrink_to(0, {}), 0U);
  EXPECT_FALSE(std::filesystem::exists(made.path));
  EXPECT_TRUE(std::filesystem::exists(folder + "x.db"));
  EXPECT_TRUE(std::filesystem::is_symlink(folder + "20261121T170042Z-1a2b3c4d-002.db"));
}

TEST_F(RecordingStoreTest, NoNameLeadsOutOfTheFolder) {
  for (const char* name : {"", "..", ".hidden", "a/b", "A", "a\nb"}) {
    PodFile file;
    file.k8s_namespace = "research";
    file.pod = name;
    EXPECT_FALSE(store_.name(file)) << name;
    std::swap(file.k8s_namespace, file.pod);
    EXPECT_FALSE(store_.name(file)) << name;
  }
}

TEST_F(RecordingStoreTest, TheOldestMakeRoomAndKeptOnesStay) {
  const PodFile kept = make("a", kStart, 1, 100);
  const PodFile old = make("b", kStart + 1, 1, 100);
  std::ofstream(old.path + "-wal") << std::string(100, 'x');
  const PodFile young = make("c", kStart + 2, 1, 100);
  EXPECT_EQ(store_.shrink_to(400, {kept.path}), 400U) << "nothing to do";
  EXPECT_EQ(store_.shrink_to(399, {kept.path}), 200U);
  EXPECT_FALSE(std::filesystem::exists(old.path));
  EXPECT_FALSE(std::filesystem::exists(old.path + "-wal"));
  EXPECT_FALSE(std::filesystem::exists(folder_.file("recordings/research/b"))) << "empty folder";
  EXPECT_TRUE(std::filesystem::exists(young.path));
  EXPECT_EQ(store_.shrink_to(0, {kept.path}), 100U) << "what is kept exceeds it";
  EXPECT_TRUE(std::filesystem::exists(kept.path));
}

TEST_F(RecordingStoreTest, AFolderThatIsNotThereHasNoRecordings) {
  EXPECT_TRUE(store_.list().empty());
  EXPECT_EQ(store_.shrink_to(0, {}), 0U);
}

TEST_F(RecordingStoreTest, AFolderThatCannotBeMadeIsAnErrorWithAHint) {
  std::ofstream(folder_.file("recordings")) << "a file";
  PodFile file;
  file.k8s_namespace = file.pod = "a";
  const auto named = store_.name(file);
  ASSERT_TRUE(named);
  const auto made = store_.prepare(*named);
  ASSERT_FALSE(made);
  EXPECT_THAT(made.error().message(), testing::HasSubstr("writable?"));
}

TEST(RequestName, IsTheSameForTheSameRequestOnly) {
  EXPECT_EQ(request_name("a"), request_name("a"));
  EXPECT_NE(request_name("a"), request_name("b"));
  EXPECT_EQ(request_name("").size(), 8U);
}

}  // namespace
}  // namespace ingero::record
