// SPDX-License-Identifier: Apache-2.0
#include "k8s/request_guard.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <utility>

namespace ingero::k8s {

RequestGuard::RequestGuard(std::chrono::nanoseconds limit, std::stop_token stop)
    : thread_([this, deadline = std::chrono::steady_clock::now() + limit, stop = std::move(stop)] {
        run(deadline, stop);
      }) {}

RequestGuard::~RequestGuard() {
  {
    const std::lock_guard lock(mutex_);
    finished_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void RequestGuard::run(std::chrono::steady_clock::time_point deadline,
                       const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  const bool finished = wake_.wait_until(lock, stop, deadline, [this] { return finished_; });
  if (finished) return;
  ended_ = true;
  expired_ = !stop.stop_requested();
  if (socket_) ::shutdown(socket_.get(), SHUT_RDWR);
}

void RequestGuard::watch_socket(int socket) {
  const std::lock_guard lock(mutex_);
  socket_ = UniqueFd(::fcntl(socket, F_DUPFD_CLOEXEC, 0));
  // Shut down before it connects, it ends at the first read at the latest.
  if (ended_) ::shutdown(socket, SHUT_RDWR);
}

bool RequestGuard::is_expired() const {
  const std::lock_guard lock(mutex_);
  return expired_;
}

}  // namespace ingero::k8s
