// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <stop_token>

namespace ingero::k8s {

/// A number in [0, 1).
using RandomSource = std::function<double()>;
/// Each thread's own generator, seeded by the system.
double draw_random();

/// Waits for the time or the stop request, whichever comes first.
void wait_for(std::chrono::nanoseconds time, const std::stop_token& stop);

struct BackoffOptions {
  std::chrono::milliseconds first{100};
  /// Labels must be right within 5 s after the API server is back: this and a connection that was begun
  /// just before, which may hang until ApiClientOptions::connect_timeout.
  std::chrono::milliseconds longest{2500};
};

/// Times to wait between attempts: they double up to the longest, and each is drawn from the upper
/// half of its step, so that the agents of a cluster do not come back all at once.
class Backoff {
 public:
  explicit Backoff(BackoffOptions options = {}, RandomSource random = draw_random);

  /// The time to wait after one more failure.
  std::chrono::nanoseconds next();
  void reset() { step_ = options_.first; }

 private:
  const BackoffOptions options_;
  RandomSource random_;
  std::chrono::nanoseconds step_;
};

}  // namespace ingero::k8s
