// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <thread>

#include "base/unique_fd.h"

namespace ingero::k8s {

/// Ends one request when a stop is requested or its time is over, wherever it waits: connecting,
/// in the handshake, for a header or for a body. It shuts the request's socket down; cpp-httplib's
/// own stop() waits for a connection that is being made.
class RequestGuard {
 public:
  RequestGuard(std::chrono::nanoseconds limit, std::stop_token stop);
  ~RequestGuard();
  RequestGuard(const RequestGuard&) = delete;
  RequestGuard& operator=(const RequestGuard&) = delete;

  /// Takes the socket of the request, which stays the caller's. The guard holds a descriptor of its
  /// own, so a number that is closed and used again is never shut down.
  void watch_socket(int socket);

  bool is_expired() const;

 private:
  void run(std::chrono::steady_clock::time_point deadline, const std::stop_token& stop);

  mutable std::mutex mutex_;
  std::condition_variable_any wake_;
  UniqueFd socket_;
  bool ended_ = false;  ///< the socket, and any that comes later, is shut down
  bool expired_ = false;
  bool finished_ = false;
  std::thread thread_;
};

}  // namespace ingero::k8s
