// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>

namespace ingero::app {

/// Tells other threads whether the main loop still comes round.
class Heartbeat {
 public:
  explicit Heartbeat(boost::asio::io_context& io);

  /// Since the loop last came round; from the construction on. From any thread.
  std::chrono::nanoseconds age() const;
  /// So long that nothing can be believed which the loop would have done. From any thread.
  bool has_stopped() const { return age() > kStopped; }

 private:
  static constexpr std::chrono::seconds kStopped{30};
  void beat();

  boost::asio::steady_timer timer_;
  std::atomic<std::uint64_t> last_ns_{0};
};

}  // namespace ingero::app
