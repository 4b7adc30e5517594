// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstring>

#include "collect/comm_structure.h"

namespace ingero::collect {
namespace {

constexpr std::uint64_t kHash = 0x9e3779b97f4a7c15;

void put(std::vector<char>& memory, std::size_t at, std::uint64_t hash, const CommRanks& ranks) {
  std::memcpy(memory.data() + at - 8, &hash, 8);
  std::memcpy(memory.data() + at, &ranks.rank, 4);
  std::memcpy(memory.data() + at + 4, &ranks.nranks, 4);
}

std::vector<char> communicator(std::size_t at, const CommRanks& ranks) {
  std::vector<char> memory(4096);
  put(memory, at, kHash, ranks);
  return memory;
}

TEST(CommStructure, AReleaseIsKnownByItsWholeName) {
#if defined(__x86_64__)
  ASSERT_TRUE(known_structure("2.28.9"));
  EXPECT_EQ(known_structure("2.28.9")->rank_offset, 1066192U);
  EXPECT_EQ(known_structure("2.28.9")->end_magic_offset, 1082960U);
#endif
  EXPECT_FALSE(known_structure("2.28"));
  EXPECT_FALSE(known_structure(""));
}

TEST(CommStructure, RanksAreBelievedBehindAHashOnly) {
  auto memory = communicator(64, {3, 8});
  EXPECT_EQ(ranks_in_window(memory.data() + 56), (CommRanks{3, 8}));
  put(memory, 64, 0, {3, 8});
  EXPECT_FALSE(ranks_in_window(memory.data() + 56)) << "no hash";
  put(memory, 64, (std::uint64_t{8} << 32) | 3, {0, 2});
  EXPECT_FALSE(ranks_in_window(memory.data() + 56)) << "rank and size themselves are no hash";
  for (const CommRanks& ranks : {CommRanks{8, 8}, {-1, 8}, {0, 0}, {0, 1U << 30}}) {
    put(memory, 64, kHash, ranks);
    EXPECT_FALSE(ranks_in_window(memory.data() + 56)) << ranks.rank << " of " << ranks.nranks;
  }
  put(memory, 64, kHash, {0, 0});
  EXPECT_TRUE(is_empty_window(memory.data() + 56));
}

TEST(CommStructure, EveryPlaceIsFoundUpToTheVeryEndOfTheMemory) {
  auto memory = communicator(64, {3, 8});
  put(memory, memory.size() - 8, kHash, {3, 8});
  EXPECT_EQ(places_of_ranks(memory, {3, 8}), (std::vector<std::uint32_t>{64, 4088}));
  EXPECT_TRUE(places_of_ranks(memory, {4, 8}).empty());
  EXPECT_TRUE(places_of_ranks({}, {3, 8}).empty());
  for (std::size_t size = 0; size < 200; ++size)
    places_of_ranks(std::vector<char>(size, 1), {3, 8});
}

TEST(CommStructure, OneCommunicatorProvesNothing) {
  CommSamples samples;
  samples.add({0, 4}, {64});
  samples.add({0, 4}, {64});
  samples.add({0, 4}, {64});
  EXPECT_FALSE(samples.place()) << "three times the same numbers";
  samples.add({1, 4}, {64});
  ASSERT_TRUE(samples.place());
  EXPECT_EQ(*samples.place(), 64U);
}

TEST(CommStructure, OnlyThePlaceThatAllShareIsLeft) {
  CommSamples samples;
  samples.add({0, 2}, {64, 128, 512});
  samples.add({1, 2}, {128, 256, 512});
  samples.add({0, 3}, {128, 512});
  EXPECT_FALSE(samples.place()) << "two are left";
  samples.add({2, 3}, {128});
  EXPECT_EQ(samples.place(), 128U);
}

TEST(CommStructure, SamplesThatShareNoPlaceBeginAnew) {
  CommSamples samples;
  samples.add({0, 4}, {64});
  samples.add({1, 4}, {64});
  samples.add({2, 4}, {72});
  EXPECT_FALSE(samples.place());
  EXPECT_EQ(samples.size(), 1U);
  samples.add({3, 4}, {});
  EXPECT_EQ(samples.size(), 1U) << "nothing found says nothing";
}

}  // namespace
}  // namespace ingero::collect
