// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "record/recorder.h"

namespace ingero::record {

struct RotatingOptions {
  RecorderOptions recorder;     ///< path, max_bytes and base_losses are set for each file
  std::uint64_t max_bytes = 0;  ///< all files together
  std::uint32_t files = 1;      ///< that share max_bytes
  /// The path of a file by its number, from `first_number` on; its folder is there.
  std::function<Result<std::string>(std::uint32_t number)> path_of;
  std::uint32_t first_number = 1;
  std::vector<std::string> earlier_files;           ///< of the same recording, oldest first
  std::shared_ptr<const model::Snapshot> snapshot;  ///< of its beginning
};

struct RotatingStatus {
  std::string path;  ///< of the newest file
  std::uint32_t files = 0;
  std::uint64_t bytes = 0;  ///< of all files that are there
  std::uint64_t calls = 0;  ///< recorded, in files that have made room for others too
  std::uint64_t lost = 0;   ///< calls; those of reasons that the recorder counts itself
  std::string ended;        ///< why nothing is recorded any more; empty: it goes on
  std::string stopped;      ///< the reason of its losses that belongs to it, such as "disk_full"
};

/// A recording in several files: when the newest is full, the oldest makes room for the next. With one
/// file it ends when that is full. Belongs to one thread.
class RotatingRecorder {
 public:
  /// The end_reason of a file that is not the last one.
  static constexpr const char* kNextFile = "the next file goes on";

  /// A file is at least this large, whatever `files` says.
  static constexpr std::uint64_t kMinFileBytes = 4 << 20;

  /// Whether a file that is full makes way for a next one.
  static bool rotates(std::uint64_t max_bytes, std::uint32_t files);
  /// Whether a recording of that size and number of files takes another one beside `bytes` of earlier ones:
  /// one of one file keeps its first calls, others make room.
  static bool has_room(std::uint64_t max_bytes, std::uint32_t files, std::uint64_t bytes);

  /// `clock` must outlive the recorder.
  static Result<std::unique_ptr<RotatingRecorder>> create(RotatingOptions options,
                                                          const Clock& clock);
  ~RotatingRecorder();
  RotatingRecorder(const RotatingRecorder&) = delete;
  RotatingRecorder& operator=(const RotatingRecorder&) = delete;

  /// As Recorder has them.
  bool add(const call_event& call) { return current_->add(call); }
  void add(TcpEvent event) { current_->add(std::move(event)); }
  void add(SchedEvent event) { current_->add(event); }
  void update(std::shared_ptr<const model::Snapshot> snapshot);

  /// Begins the next file when the newest is nearly full. To be called several times a second.
  void tick();

  RotatingStatus status() const;
  /// Waits until everything is on disk.
  RotatingStatus finish(const std::string& reason);

 private:
  /// A file that is being finished, by a thread of its own.
  struct Finishing {
    std::unique_ptr<Recorder> recorder;
    std::atomic<bool> done = false;
    std::thread thread;
  };

  RotatingRecorder(RotatingOptions options, const Clock& clock);
  Status begin_file();
  void rotate();
  std::uint64_t bytes() const;
  void make_room();
  void retire(std::unique_ptr<Recorder> recorder);
  void settle(bool wait);
  void count(const RecorderStatus& status);

  RotatingOptions options_;
  const Clock& clock_;
  std::uint64_t share_ = 0;      ///< of one file, in bytes
  std::uint64_t rotate_at_ = 0;  ///< size of the newest file at which the next begins
  std::uint32_t next_number_;
  std::vector<std::string> files_;  ///< oldest first, the newest included
  std::unique_ptr<Recorder> current_;
  std::vector<std::unique_ptr<Finishing>> finishing_;
  std::uint64_t finished_calls_ = 0, finished_lost_ = 0;
  std::shared_ptr<const model::Snapshot> last_snapshot_;
  std::string trouble_;  ///< why there is no next file; empty: there is, or none is needed yet
};

}  // namespace ingero::record
