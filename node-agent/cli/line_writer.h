// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

namespace ingero::cli {

/// Writes text to a descriptor on a thread of its own: whoever reads the other end may be slow, or stop,
/// and nothing else waits for it.
class LineWriter {
 public:
  explicit LineWriter(int fd);
  ~LineWriter();  ///< gives the reader `kPatience` for what is left, then gives it up
  LineWriter(const LineWriter&) = delete;
  LineWriter& operator=(const LineWriter&) = delete;

  void write(std::string_view text);

  /// Too much is waiting already: hold back until the reader has caught up.
  bool is_full() const;
  /// The reader has gone.
  bool is_broken() const;
  /// Waits until everything is written, at most `seconds`.
  void flush(double seconds);

 private:
  void run();
  bool write_some(std::string& text);

  int fd_;
  int wake_fds_[2] = {-1, -1};
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::string waiting_;
  bool writing_ = false;
  bool stopping_ = false;
  bool broken_ = false;
  std::thread thread_;
};

}  // namespace ingero::cli
