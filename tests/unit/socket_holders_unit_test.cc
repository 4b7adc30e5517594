// SPDX-License-Identifier: Apache-2.0
#include "app/socket_holders.h"

#include <gtest/gtest.h>

#include <ctime>

namespace ingero::app {
namespace {

using model::ProcessKey;

constexpr std::uint64_t kSecond = 1'000'000'000, kMillisecond = 1'000'000;
constexpr ProcessKey kTrainer{812, 77}, kOther{813, 78}, kReused{812, 99};

/// A host whose time and sockets a test sets.
class SocketHoldersTest : public ::testing::Test, public ClockSource {
 protected:
  std::uint64_t monotonic_ns() const override { return now_; }
  std::uint64_t boottime_ns() const override { return now_; }
  std::uint64_t realtime_ns() const override { return now_; }

  /// Asks about a moment; the answer is put where the result points to.
  std::shared_ptr<std::optional<ProcessKey>> ask(std::uint64_t inode, std::uint64_t time_ns) {
    auto result = std::make_shared<std::optional<ProcessKey>>(kNoAnswer);
    holders_.find(inode, time_ns,
                  [result](std::optional<ProcessKey> process) { *result = process; });
    return result;
  }
  /// Asks about this moment, and looks.
  std::optional<ProcessKey> answer(std::uint64_t inode) {
    const auto result = ask(inode, now_);
    now_ += kMillisecond;
    holders_.finish();
    return *result;
  }

  static constexpr ProcessKey kNoAnswer{1, 1};
  std::uint64_t now_ = 100 * kSecond;
  bool burn_ = false;  ///< 20 ms of the CPU at each look
  int scans_ = 0;
  bool works_ = true;
  std::vector<discover::SocketHolder> sockets_ = {{5, kTrainer}, {6, kOther}};
  boost::asio::io_context io_;
  SocketHolders holders_{io_,
                         [this]() -> Result<std::vector<discover::SocketHolder>> {
                           ++scans_;
                           const std::clock_t begin = std::clock();
                           while (burn_ && std::clock() - begin < CLOCKS_PER_SEC / 50) {
                           }
                           if (!works_) return fail({"scan", "sockets", "no such iterator", ""});
                           return sockets_;
                         },
                         *this};
};

TEST_F(SocketHoldersTest, TheOnlyHolderIsTheAnswerAlsoWithSeveralDescriptors) {
  sockets_.push_back({5, kTrainer});
  EXPECT_EQ(answer(5), kTrainer);
  EXPECT_EQ(answer(6), kOther);
}

TEST_F(SocketHoldersTest, SeveralHoldersOrNoneAreNobody) {
  sockets_.push_back({5, kOther});
  sockets_.push_back({6, kOther});
  EXPECT_EQ(answer(5), std::nullopt);
  EXPECT_EQ(answer(6), kOther);
  EXPECT_EQ(answer(7), std::nullopt);
  EXPECT_EQ(answer(0), std::nullopt);
}

TEST_F(SocketHoldersTest, AThirdHolderDoesNotMakeASharedSocketSomebodys) {
  sockets_ = {{5, kTrainer}, {5, kOther}, {5, kTrainer}, {5, kTrainer}};
  EXPECT_EQ(answer(5), std::nullopt);
}

TEST_F(SocketHoldersTest, ALookThatComesTooLateTellsNothing) {
  const auto late = ask(5, now_ - kSecond), early = ask(5, now_ - kSecond + 2 * kMillisecond);
  now_ += kMillisecond;
  holders_.finish();
  EXPECT_EQ(*late, std::nullopt);
  EXPECT_EQ(*early, kTrainer);
}

TEST_F(SocketHoldersTest, ASocketThatHasChangedHandsIsNobodysForASecond) {
  EXPECT_EQ(answer(5), kTrainer);
  now_ += 300 * kMillisecond;
  sockets_[0].process = kReused;  // another process, with the same number
  EXPECT_EQ(answer(5), std::nullopt);
  now_ += 300 * kMillisecond;
  EXPECT_EQ(answer(5), kReused);
  now_ += 2 * kSecond;
  sockets_[0].process = kOther;
  EXPECT_EQ(answer(5), kOther) << "the inode's number is that of another socket by now";
}

TEST_F(SocketHoldersTest, ASocketThatWasSharedShortlyBeforeIsNobodys) {
  sockets_.push_back({5, kOther});
  EXPECT_EQ(answer(5), std::nullopt);
  sockets_.pop_back();
  EXPECT_EQ(answer(5), std::nullopt);
  EXPECT_EQ(answer(5), kTrainer);
}

TEST_F(SocketHoldersTest, OneLookAnswersAllThatCameTogetherAndTheNextOneWaits) {
  std::vector<std::shared_ptr<std::optional<ProcessKey>>> answers;
  for (int i = 0; i < 1000; ++i) answers.push_back(ask(5, now_));
  EXPECT_EQ(scans_, 0);
  io_.run();
  EXPECT_EQ(scans_, 1);
  for (const auto& one : answers) EXPECT_EQ(*one, kTrainer);
  EXPECT_EQ(holders_.next_look_ns(), now_ + 200 * kMillisecond);
  const auto waits = ask(5, now_);
  io_.restart();
  io_.poll();
  EXPECT_EQ(*waits, kNoAnswer);
  io_.run_one();
  EXPECT_EQ(*waits, kTrainer);
}

TEST_F(SocketHoldersTest, LooksThatTakeLongAreRarer) {
  burn_ = true;
  EXPECT_EQ(answer(5), kTrainer);
  EXPECT_GE(holders_.next_look_ns(), now_ + 19 * 20 * kMillisecond);
}

TEST_F(SocketHoldersTest, WithoutAnIteratorNobodyIsKnownAndItIsTriedOnce) {
  works_ = false;
  EXPECT_EQ(answer(5), std::nullopt);
  EXPECT_EQ(answer(5), std::nullopt);
  EXPECT_EQ(scans_, 1);
}

TEST_F(SocketHoldersTest, MoreQuestionsThanThereIsRoomForAreAnsweredAtOnce) {
  for (int i = 0; i < 16384; ++i) ask(5, now_);
  EXPECT_EQ(*ask(5, now_), std::nullopt);
  EXPECT_EQ(scans_, 0);
}

}  // namespace
}  // namespace ingero::app
