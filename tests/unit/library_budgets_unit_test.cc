// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <set>

#include "app/library_room.h"
#include "bpf/wire.h"
#include "discover/inspection_budget.h"
#include "discover/look_again.h"

namespace ingero {
namespace {

using namespace std::chrono_literals;
using app::LibraryRoom;
using discover::InspectionBudget;
using discover::LookAgain;

constexpr auto kHostile = static_cast<model::CgroupId>(7);
constexpr auto kVictim = static_cast<model::CgroupId>(8);
const InspectionBudget::Time kStart{1000s};

TEST(InspectionBudget, AContainerThatBurnsProcessorTimeWaitsAndItsNeighbourDoesNot) {
  InspectionBudget budget;
  int looks = 0;
  for (; budget.allows(kHostile, kStart); ++looks) budget.charge(kHostile, {2s, 1 << 20}, kStart);
  EXPECT_EQ(looks, 3);  // 5 s, of which the last look takes more than is left
  EXPECT_TRUE(budget.allows(kVictim, kStart));
  EXPECT_FALSE(budget.allows(kHostile, kStart + 10s));
  EXPECT_TRUE(budget.allows(kHostile, kStart + 30s));
}

TEST(InspectionBudget, ManyCheapLooksAndManyBytesEndToo) {
  InspectionBudget budget;
  int looks = 0;
  for (; budget.allows(kHostile, kStart); ++looks) budget.charge(kHostile, {1us, 4096}, kStart);
  EXPECT_EQ(looks, 4096);
  looks = 0;
  for (; budget.allows(kVictim, kStart); ++looks) budget.charge(kVictim, {1ms, 320 << 20}, kStart);
  EXPECT_EQ(looks, 7);
}

TEST(InspectionBudget, ContainersThatHaveRestedAreForgotten) {
  InspectionBudget budget;
  for (std::uint64_t i = 100; i < 1100; ++i)
    budget.charge(static_cast<model::CgroupId>(i), {1ms, 4096}, kStart);
  EXPECT_EQ(budget.size(), 1000u);
  budget.charge(kVictim, {1ms, 4096}, kStart + 60s);
  EXPECT_EQ(budget.size(), 1u);
}

TEST(LookAgain, WaitsTwiceAsLongAfterEachFailureOfTheSameWay) {
  LookAgain again;
  const LookAgain::Key way{{1, 2}, {3, 4, 5}}, other{{2, 2}, {3, 4, 5}};
  auto now = kStart;
  for (const auto wait : {1s, 2s, 4s, 8s}) {
    again.failed(way, now);
    EXPECT_FALSE(again.is_due(way, now + wait - 1ms));
    EXPECT_TRUE(again.is_due(way, now + wait));
    EXPECT_TRUE(again.is_due(other, now)) << "another process may lead to the file";
    now += wait;
  }
  EXPECT_TRUE(again.take_due(now));
  EXPECT_FALSE(again.take_due(now)) << "told once";
  for (int i = 0; i < 20; ++i) again.failed(way, now);
  EXPECT_TRUE(again.is_due(way, now + 600s));
  again.succeeded(way);
  again.failed(way, now);
  EXPECT_TRUE(again.is_due(way, now + 1s));
}

TEST(LibraryRoom, AContainerHasItsShareAndNoMore) {
  LibraryRoom room(1 << 20);
  std::size_t files = 0;
  while (room.take(kHostile, 6)) ++files;
  EXPECT_EQ(files, LibraryRoom::kFilesPerContainer);
  EXPECT_TRUE(room.take(kVictim, 6));
}

TEST(LibraryRoom, FewDescriptorsAreSharedToo) {
  LibraryRoom room(768);
  std::size_t files = 0;
  while (room.take(kHostile, 6)) ++files;
  EXPECT_EQ(files, 16u) << "an eighth of the descriptors";
  LibraryRoom perf(768);
  files = 0;
  while (perf.take(kVictim, 180)) ++files;
  EXPECT_EQ(files, 4u) << "the libraries of one program, however many descriptors they need";
}

TEST(LibraryRoom, IndexesGivenBackAreUsedAgainTheOldestFirst) {
  LibraryRoom room(1 << 20);
  std::set<std::uint32_t> seen;
  for (std::uint32_t i = 1; i <= 3 * COOKIE_LIBRARY_MAX; ++i) {
    const auto index = room.take(kHostile, 6);
    ASSERT_TRUE(index) << i << ": " << index.error().message();
    EXPECT_EQ(*index, (i - 1) % COOKIE_LIBRARY_MAX + 1);
    seen.insert(*index);
    room.give_back(*index);
  }
  EXPECT_EQ(seen.size(), static_cast<std::size_t>(COOKIE_LIBRARY_MAX));
}

}  // namespace
}  // namespace ingero
