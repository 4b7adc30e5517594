// SPDX-License-Identifier: Apache-2.0
#include "app/socket_holders.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <ctime>

namespace ingero::app {
namespace {

constexpr std::uint64_t kBetweenLooks = 200'000'000;
constexpr std::uint64_t kCostFactor = 19;         // a look may take a twentieth of the time
constexpr std::uint64_t kMaxAge = 1'000'000'000;  // between the moment and a look that tells of it
constexpr std::size_t kMaxWaiting = 16384;

/// Not the time by the wall clock, which is long where others use the CPU.
std::uint64_t own_cpu_ns() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(time.tv_nsec);
}

}  // namespace

void SocketHolders::find(std::uint64_t inode, std::uint64_t time_ns, Answer answer) {
  if (inode == 0 || broken_ || waiting_.size() >= kMaxWaiting) {
    answer(std::nullopt);
    return;
  }
  waiting_.push_back({inode, time_ns, std::move(answer)});
  look_soon();
}

void SocketHolders::finish() {
  timer_.cancel();
  if (!waiting_.empty()) look();
}

/// By the timer also when it could be now: one look answers all that came together.
void SocketHolders::look_soon() {
  if (coming_) return;
  coming_ = true;
  const std::uint64_t now = clock_.monotonic_ns();
  timer_.expires_after(std::chrono::nanoseconds(next_look_ns_ > now ? next_look_ns_ - now : 0));
  timer_.async_wait([this](const boost::system::error_code& error) {
    coming_ = false;
    if (!error && !waiting_.empty()) look();
  });
}

void SocketHolders::look() {
  Look look = take_look();
  std::vector<Question> questions;
  std::swap(questions, waiting_);
  for (const Question& question : questions) question.answer(answer_to(question, look));
  before_ = std::move(look);
}

SocketHolders::Look SocketHolders::take_look() {
  Look look;
  look.begin_ns = clock_.monotonic_ns();
  const std::uint64_t cpu_before = own_cpu_ns();
  const auto found = scan_();
  const std::uint64_t cost = own_cpu_ns() - cpu_before;
  look.end_ns = clock_.monotonic_ns();
  next_look_ns_ = look.end_ns + std::max(kBetweenLooks, cost * kCostFactor);
  if (!found) {
    broken_ = true;
    spdlog::warn("{}; which process a retransmission belongs to is not recorded",
                 found.error().message());
    return look;
  }
  spdlog::debug("{} sockets held by processes, {} us", found->size(), cost / 1000);
  for (const discover::SocketHolder& holder : *found) {
    const auto [known, added] = look.holders.try_emplace(holder.inode, holder.process);
    if (!added && known->second != holder.process) known->second = std::nullopt;
  }
  return look;
}

std::optional<model::ProcessKey> SocketHolders::answer_to(const Question& question,
                                                          const Look& look) const {
  if (look.end_ns > question.time_ns + kMaxAge) return std::nullopt;
  const auto held = look.holders.find(question.inode);
  if (held == look.holders.end()) return std::nullopt;
  const bool is_recent = before_.end_ns != 0 && before_.begin_ns + kMaxAge >= question.time_ns;
  const auto held_before = before_.holders.find(question.inode);
  if (is_recent && held_before != before_.holders.end() && held_before->second != held->second)
    return std::nullopt;
  return held->second;
}

}  // namespace ingero::app
