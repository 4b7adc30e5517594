// SPDX-License-Identifier: Apache-2.0
#include "program/session.h"

#include <signal.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace ingero::workload {
namespace {

std::atomic<bool> stop{false};

std::uint64_t clock_ns(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace

std::uint64_t monotonic_ns() { return clock_ns(CLOCK_MONOTONIC); }
std::uint64_t unix_ns() { return clock_ns(CLOCK_REALTIME); }

void stop_on_signals() {
  struct sigaction action {};
  action.sa_handler = [](int) { stop = true; };
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
}

bool stop_requested() { return stop; }

bool Session::expired() const {
  return stop || (context_.deadline_ns != 0 && monotonic_ns() >= context_.deadline_ns);
}

bool Session::next_round(std::uint64_t standard) {
  if (expired()) return false;
  const std::uint64_t wanted = context_.options.calls ? context_.options.calls : standard;
  if (context_.deadline_ns == 0 && round_ >= wanted) return false;
  round_++;
  return true;
}

void Session::pace() {
  if (context_.options.rate <= 0) return;
  const std::uint64_t now = monotonic_ns();
  const auto step = static_cast<std::uint64_t>(1e9 / context_.options.rate);
  next_ns_ = std::max(next_ns_ + step, now);  // a late caller does not make up by a burst
  const timespec until{static_cast<time_t>(next_ns_ / 1'000'000'000),
                       static_cast<long>(next_ns_ % 1'000'000'000)};
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
}

void run_threads(Context& context, int threads, const std::function<void(Session&)>& body) {
  std::vector<std::thread> others;
  for (int i = 1; i < threads; i++) {
    others.emplace_back([&context, &body, i] {
      Session session(context, i);
      body(session);
    });
  }
  Session session(context, 0);
  body(session);
  for (auto& thread : others) thread.join();
}

}  // namespace ingero::workload
