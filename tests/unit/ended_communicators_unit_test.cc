// SPDX-License-Identifier: Apache-2.0
#include "collect/ended_communicators.h"

#include <gtest/gtest.h>

namespace ingero::collect {
namespace {

constexpr std::uint64_t kCgroup = 7;

comm_key key(std::uint64_t handle) { return {handle, 1, 10, 0}; }

comm_info info(std::uint64_t collectives, std::uint64_t id_hash = 0) {
  comm_info info{};
  info.cgroup_id = kCgroup;
  info.id_hash = id_hash;
  info.collectives = collectives;
  info.created_ns = 5;
  return info;
}

std::uint64_t kept(const EndedCommunicators& ended) {
  std::vector<model::EndedCollectives> rows;
  ended.fill(rows);
  std::uint64_t sum = 0;
  for (const auto& row : rows) sum += row.collectives;
  return sum;
}

/// One reading of the kernel's table.
void read(EndedCommunicators& ended, std::initializer_list<std::pair<comm_key, comm_info>> live) {
  ended.begin();
  for (const auto& [handle, state] : live) ended.seen(handle, state, RANK_UNKNOWN);
  ended.finish();
}

TEST(EndedCommunicators, WhatOneOfSeveralHasCountedStaysAndItsLastCallsComeWithItsEvent) {
  EndedCommunicators ended;
  read(ended, {{key(1), info(100)}, {key(2), info(5)}});
  EXPECT_EQ(kept(ended), 0u);
  read(ended, {{key(2), info(6)}});
  EXPECT_EQ(kept(ended), 100u) << "gone before its event was read";
  ended.ended(key(1), info(103), RANK_UNKNOWN);
  EXPECT_EQ(kept(ended), 103u);
  ended.ended(key(2), info(9), RANK_UNKNOWN);
  EXPECT_EQ(kept(ended), 112u) << "its event came first";
  read(ended, {});
  EXPECT_EQ(kept(ended), 112u);
}

TEST(EndedCommunicators, OneThatNobodySawAliveIsCountedByItsEvent) {
  EndedCommunicators ended;
  ended.ended(key(1), info(3), RANK_UNKNOWN);
  EXPECT_EQ(kept(ended), 3u);
}

TEST(EndedCommunicators, AHandleThatIsUsedAgainIsAnotherCommunicator) {
  EndedCommunicators ended;
  comm_info second = info(2);
  second.created_ns = 50;
  read(ended, {{key(1), info(100)}});
  read(ended, {{key(1), second}});
  EXPECT_EQ(kept(ended), 100u);
  ended.ended(key(1), info(101), RANK_UNKNOWN);
  EXPECT_EQ(kept(ended), 101u);
}

TEST(EndedCommunicators, ARankThatBecomesKnownLeavesWhatWasCountedWithoutIt) {
  EndedCommunicators ended;
  ended.begin();
  ended.seen(key(1), info(40), RANK_UNKNOWN);
  ended.finish();
  ended.begin();
  ended.seen(key(1), info(41), 3);
  ended.finish();
  EXPECT_EQ(kept(ended), 40u);
}

TEST(EndedCommunicators, AStormOfCommunicatorsIsBoundedAndForgottenWithItsContainer) {
  EndedCommunicators ended;
  for (std::uint64_t i = 1; i <= 9000; ++i) ended.ended(key(i), info(1, i), 0);
  std::vector<model::EndedCollectives> rows;
  ended.fill(rows);
  EXPECT_EQ(rows.size(), EndedCommunicators::kMaxPerCgroup);
  ended.forget({static_cast<model::CgroupId>(kCgroup)});
  EXPECT_EQ(kept(ended), 0u);
}

}  // namespace
}  // namespace ingero::collect
