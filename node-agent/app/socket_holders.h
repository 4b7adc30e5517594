// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "discover/socket_scanner.h"
#include "model/identity.h"

namespace ingero::app {

/// Which process held a socket when something happened to it, where that is sure: it alone of all processes
/// of the host had it at the first look after the moment, and the look before, if there was one within a
/// second, did not show anything else. A socket is named by its inode, whose number may be used again.
/// Nobody: several processes, none, or the look came too late. For the thread that runs the io_context.
class SocketHolders {
 public:
  using Scan = std::function<Result<std::vector<discover::SocketHolder>>()>;
  using Answer = std::function<void(std::optional<model::ProcessKey>)>;

  /// `clock` must outlive the object.
  SocketHolders(boost::asio::io_context& io, Scan scan,
                const ClockSource& clock = system_clock_source())
      : timer_(io), scan_(std::move(scan)), clock_(clock) {}

  /// Answers after the next look, within a fraction of a second. `time_ns`: CLOCK_MONOTONIC of the moment.
  /// An inode of 0 is held by nobody.
  void find(std::uint64_t inode, std::uint64_t time_ns, Answer answer);

  /// Looks now and answers all that wait.
  void finish();

  /// CLOCK_MONOTONIC before which there is no other look.
  std::uint64_t next_look_ns() const { return next_look_ns_; }

 private:
  /// Of each socket its only holder; nullopt: it has several.
  struct Look {
    std::uint64_t begin_ns = 0, end_ns = 0;  ///< CLOCK_MONOTONIC; 0: there was none
    std::unordered_map<std::uint64_t, std::optional<model::ProcessKey>> holders;
  };
  struct Question {
    std::uint64_t inode, time_ns;
    Answer answer;
  };

  void look_soon();
  void look();
  Look take_look();
  std::optional<model::ProcessKey> answer_to(const Question& question, const Look& look) const;

  boost::asio::steady_timer timer_;
  const Scan scan_;
  const ClockSource& clock_;
  Look before_;
  std::vector<Question> waiting_;
  std::uint64_t next_look_ns_ = 0;
  bool coming_ = false;  ///< the timer runs
  bool broken_ = false;  ///< a look has failed: nobody is known any more
};

}  // namespace ingero::app
