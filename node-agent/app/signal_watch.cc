// SPDX-License-Identifier: Apache-2.0
#include "app/signal_watch.h"

#include <signal.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <boost/asio/post.hpp>

namespace ingero::app {
namespace {

using namespace std::chrono_literals;

constexpr auto kLoopPatience = 3s;
constexpr int kGaveUp = 1;

}  // namespace

SignalWatch::SignalWatch(boost::asio::io_context& io, Handler handler)
    : io_(io), handler_(std::move(handler)) {
  signals_.add(SIGINT);
  signals_.add(SIGTERM);
  struct sigaction hangup {};
  if (::sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler != SIG_IGN)
    signals_.add(SIGHUP);
  await_signal();
  thread_ = std::thread([this] { own_.run(); });
}

SignalWatch::~SignalWatch() {
  own_.stop();
  thread_.join();
}

void SignalWatch::await_signal() {
  signals_.async_wait([this](const boost::system::error_code& error, int signal) {
    if (error) return;
    if (!obeyed_) set_deadline(kLoopPatience, "the main loop", kGaveUp);
    boost::asio::post(io_, [this, signal] { handler_(signal); });
  });
}

void SignalWatch::set_deadline(std::chrono::nanoseconds time, std::string what, int status) {
  deadline_.expires_after(time);
  deadline_.async_wait(
      [time, what = std::move(what), status](const boost::system::error_code& error) {
        if (error) return;
        spdlog::error("{} did not come to its end within {} s: ending without it", what,
                      std::chrono::duration<double>(time).count());
        ::_exit(status);
      });
}

void SignalWatch::allow(std::chrono::nanoseconds time, std::string what, int status) {
  boost::asio::post(own_, [this, time, what = std::move(what), status]() mutable {
    obeyed_ = true;
    set_deadline(time, std::move(what), status);
  });
}

void SignalWatch::allow_any_time() {
  boost::asio::post(own_, [this] {
    obeyed_ = true;
    deadline_.cancel();
  });
}

}  // namespace ingero::app
