// SPDX-License-Identifier: Apache-2.0
#include "k8s/backoff.h"

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <random>
#include <utility>

namespace ingero::k8s {

double draw_random() {
  thread_local std::mt19937_64 generator{std::random_device{}()};
  return std::uniform_real_distribution<double>(0.0, 1.0)(generator);
}

void wait_for(std::chrono::nanoseconds time, const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any wake;
  std::unique_lock lock(mutex);
  wake.wait_for(lock, stop, time, [] { return false; });
}

Backoff::Backoff(BackoffOptions options, RandomSource random)
    : options_(options), random_(std::move(random)), step_(options.first) {}

std::chrono::nanoseconds Backoff::next() {
  const auto half = step_ / 2;
  const auto extra = static_cast<double>(half.count()) * random_();
  step_ = std::min<std::chrono::nanoseconds>(step_ * 2, options_.longest);
  return half + std::chrono::nanoseconds(static_cast<std::int64_t>(extra));
}

}  // namespace ingero::k8s
