// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "app/agent.h"
#include "record/recorder.h"

namespace ingero::app {

struct RecordingOptions {
  std::string path;             ///< empty: nothing is recorded
  std::uint64_t max_bytes = 0;  ///< 0: no limit
  std::string selection;        ///< what the trace is limited to; empty: nothing
  /// Shorter ones are not recorded; 0: none is.
  std::chrono::nanoseconds wait_threshold = std::chrono::milliseconds(1);
  std::chrono::nanoseconds off_cpu_threshold = std::chrono::milliseconds(10);
};

/// The recording of a trace: calls as they come, and every two seconds what the agent knows beside them.
class RecordingSession {
 public:
  /// `agent` must outlive the session.
  static Result<std::unique_ptr<RecordingSession>> start(boost::asio::io_context& io, Agent& agent,
                                                         const RecordingOptions& options);

  /// On the agent's thread. Returns whether another call would find room now.
  bool add(const call_event& call) { return recorder_->add(call); }
  void add(record::TcpEvent event) { recorder_->add(std::move(event)); }
  void add(const record::SchedEvent& event) { recorder_->add(event); }

  struct End {
    std::string text;      ///< what was recorded and what was lost, in lines
    bool complete = true;  ///< false: it ended before the trace did
  };
  /// Ends the recording; what the kernel still holds has been taken.
  End finish(const std::string& reason);

 private:
  RecordingSession(boost::asio::io_context& io, Agent& agent, std::string path)
      : agent_(agent), timer_(io), path_(std::move(path)) {}
  void tell_state();

  Agent& agent_;
  boost::asio::steady_timer timer_;
  std::string path_;
  std::unique_ptr<record::Recorder> recorder_;
};

}  // namespace ingero::app
