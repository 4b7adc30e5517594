// SPDX-License-Identifier: Apache-2.0
#include "base/share_budget.h"

#include <gtest/gtest.h>

namespace ingero {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;

TEST(ShareBudget, LetsABurstThroughAndThenSoMuchASecond) {
  ShareBudget budget(10, 5);
  int taken = 0;
  for (int i = 0; i < 100; ++i) taken += budget.take(1, kSecond) ? 1 : 0;
  EXPECT_EQ(taken, 5);
  EXPECT_FALSE(budget.take(1, kSecond + kSecond / 20)) << "half of one";
  EXPECT_TRUE(budget.take(1, kSecond + kSecond / 10 + 1));
  EXPECT_FALSE(budget.take(1, kSecond + kSecond / 10 + 2));
}

TEST(ShareBudget, SavesNoMoreThanTheBurst) {
  ShareBudget budget(10, 3);
  int taken = 0;
  for (int i = 0; i < 100; ++i) taken += budget.take(1, 1000 * kSecond) ? 1 : 0;
  EXPECT_EQ(taken, 3);
}

TEST(ShareBudget, OfOneIsNotUsedUpByAnother) {
  ShareBudget budget(1, 2);
  while (budget.take(1, kSecond)) {
  }
  EXPECT_TRUE(budget.take(2, kSecond));
}

TEST(ShareBudget, ADebtIsPaidOffByWaiting) {
  ShareBudget budget(100, 100);
  EXPECT_TRUE(budget.has_any(1, kSecond));
  budget.charge(1, kSecond, 300);
  EXPECT_FALSE(budget.has_any(1, 2 * kSecond));
  EXPECT_FALSE(budget.has_any(1, 3 * kSecond));
  EXPECT_TRUE(budget.has_any(1, 3 * kSecond + kSecond / 100));
}

TEST(ShareBudget, MoreKeysThanFitShareOneAndForgetTheFull) {
  ShareBudget budget(1, 1, 4);
  for (std::uint64_t key = 0; key < 4; ++key) EXPECT_TRUE(budget.take(key, kSecond));
  EXPECT_TRUE(budget.take(10, kSecond)) << "the first of the surplus";
  EXPECT_FALSE(budget.take(11, kSecond)) << "shares it";
  EXPECT_EQ(budget.size(), 4u);
  EXPECT_TRUE(budget.take(12, 3 * kSecond)) << "those that are full again have made room";
  EXPECT_EQ(budget.size(), 1u);
}

TEST(ShareBudget, AClockThatStandsStillGivesNothing) {
  ShareBudget budget(1e9, 1);
  EXPECT_TRUE(budget.take(1, kSecond));
  EXPECT_FALSE(budget.take(1, kSecond));
  EXPECT_FALSE(budget.take(1, kSecond - 5)) << "nor one that goes back";
}

}  // namespace
}  // namespace ingero
