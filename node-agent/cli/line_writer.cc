// SPDX-License-Identifier: Apache-2.0
#include "cli/line_writer.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

namespace ingero::cli {
namespace {

constexpr std::size_t kFullBytes = 4 << 20;
constexpr double kPatience = 2.0;
// A pipe that polls writable takes at least this much without blocking.
constexpr std::size_t kPipeAtom = 4096;

}  // namespace

LineWriter::LineWriter(int fd) : fd_(fd) {
  if (::pipe2(wake_fds_, O_CLOEXEC) != 0) broken_ = true;
  thread_ = std::thread([this] { run(); });
}

LineWriter::~LineWriter() {
  flush(kPatience);
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  ::close(wake_fds_[1]);  // ends a poll() for a reader that does not read
  thread_.join();
  ::close(wake_fds_[0]);
}

void LineWriter::write(std::string_view text) {
  {
    const std::lock_guard lock(mutex_);
    waiting_ += text;
  }
  changed_.notify_all();
}

bool LineWriter::is_full() const {
  const std::lock_guard lock(mutex_);
  return waiting_.size() >= kFullBytes;
}

bool LineWriter::is_broken() const {
  const std::lock_guard lock(mutex_);
  return broken_;
}

void LineWriter::flush(double seconds) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::duration<double>(seconds),
                    [this] { return broken_ || (waiting_.empty() && !writing_); });
}

void LineWriter::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || (!waiting_.empty() && !broken_); });
    if (stopping_) return;
    std::string text = std::move(waiting_);
    waiting_.clear();
    writing_ = true;
    lock.unlock();
    const bool written = write_some(text);
    lock.lock();
    writing_ = false;
    broken_ |= !written;
    changed_.notify_all();
  }
}

/// All of `text`; false: the reader has gone, or the writer is to stop.
bool LineWriter::write_some(std::string& text) {
  std::string_view rest = text;
  while (!rest.empty()) {
    pollfd ready[2] = {{fd_, POLLOUT, 0}, {wake_fds_[0], 0, 0}};
    if (::poll(ready, 2, -1) < 0 && errno != EINTR) return false;
    if ((ready[1].revents & POLLHUP) != 0) return false;
    if ((ready[0].revents & (POLLERR | POLLNVAL)) != 0) return false;
    if ((ready[0].revents & POLLOUT) == 0) continue;
    const ssize_t put = ::write(fd_, rest.data(), std::min(rest.size(), kPipeAtom));
    if (put < 0 && errno != EINTR && errno != EAGAIN) return false;
    if (put > 0) rest.remove_prefix(static_cast<std::size_t>(put));
  }
  return true;
}

}  // namespace ingero::cli
