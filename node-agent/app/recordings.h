// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/asio/io_context.hpp>
#include <memory>
#include <optional>
#include <string>

#include "app/agent.h"
#include "app/pod_recordings.h"
#include "app/recording_session.h"
#include "app/socket_holders.h"

namespace ingero::app {

/// What a run of the agent records: everything into one file, or pods that policies ask for, or nothing.
/// Belongs to the io_context's thread.
class Recordings {
 public:
  /// `agent` must outlive the object.
  Recordings(boost::asio::io_context& io, Agent& agent, RecordingOptions options);

  /// Everything into `options.path`.
  Status record_all();
  /// Pods that policies ask for.
  void record_pods(const config::Config& config);
  void set_config(const config::Config& config);

  /// Returns whether another call would find room now.
  bool add(const call_event& call);
  void add(const tcp_event& event, std::optional<model::CgroupId> owner);
  void add(const wait_event& event);

  /// Policies or pods may have changed. From any thread.
  void look_soon();
  /// Null: nobody can ask for the recording of a pod. From any thread.
  PodRecordings* pods() const { return pods_.get(); }

  /// Takes what the kernel still holds, and ends every recording. The text is empty where `record_all()`
  /// was not called.
  RecordingSession::End finish(const std::string& reason);

 private:
  bool drain();
  void add_row(const record::TcpEvent& row, std::optional<model::CgroupId> owner);

  boost::asio::io_context& io_;
  Agent& agent_;
  const RecordingOptions options_;
  bool scheduler_ = true;  ///< waits and spans are seen
  SocketHolders holders_;
  std::unique_ptr<RecordingSession> file_;
  std::unique_ptr<PodRecordings> pods_;
};

}  // namespace ingero::app
