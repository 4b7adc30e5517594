// SPDX-License-Identifier: Apache-2.0
#include "app/heartbeat.h"

#include "base/clock.h"

namespace ingero::app {

Heartbeat::Heartbeat(boost::asio::io_context& io) : timer_(io) { beat(); }

void Heartbeat::beat() {
  last_ns_ = system_clock_source().monotonic_ns();
  timer_.expires_after(std::chrono::seconds(1));
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) beat();
  });
}

std::chrono::nanoseconds Heartbeat::age() const {
  const std::uint64_t now = system_clock_source().monotonic_ns(), last = last_ns_;
  return std::chrono::nanoseconds(now > last ? now - last : 0);
}

}  // namespace ingero::app
