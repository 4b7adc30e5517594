// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <string>
#include <thread>

namespace ingero::app {

/// Receives SIGINT, SIGTERM and, unless it is ignored as under nohup, SIGHUP on a thread of its own, so that they are obeyed whatever the main loop waits for:
/// the handler is called on the loop; where the loop does not come round in time, the process ends without it.
class SignalWatch {
 public:
  using Handler = std::function<void(int signal)>;

  SignalWatch(boost::asio::io_context& io, Handler handler);
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  /// From now on `what` may take so long; then the process ends with `status`. Without a signal as well.
  void allow(std::chrono::nanoseconds time, std::string what, int status);
  /// What comes now may take as long as it must.
  void allow_any_time();

 private:
  void await_signal();
  void set_deadline(std::chrono::nanoseconds time, std::string what, int status);

  boost::asio::io_context& io_;
  const Handler handler_;
  boost::asio::io_context own_;
  boost::asio::signal_set signals_{own_};
  boost::asio::steady_timer deadline_{own_};
  bool obeyed_ = false;  ///< the main loop has come round; on the watch's thread
  std::thread thread_;
};

}  // namespace ingero::app
