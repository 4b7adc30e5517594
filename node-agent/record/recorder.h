// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "model/snapshot.h"
#include "record/events.h"

namespace ingero::record {

/// What the recording says about itself.
struct RecordingFacts {
  std::string host, kernel, architecture, agent_version, attach_method;
  std::string selection;  ///< empty: everything
  /// Rows of sched_events have at least this length; 0: there are none.
  std::int64_t wait_threshold_ns = 0, off_cpu_threshold_ns = 0;
};

struct RecorderOptions {
  std::string path;  ///< must not exist
  RecordingFacts facts;
  std::optional<std::pair<uid_t, gid_t>> owner;  ///< nullopt: who runs the agent
  std::uint64_t max_bytes = 0;                   ///< file and write-ahead log; 0: no limit
  std::size_t max_waiting = 128 << 10;           ///< calls that wait for the writer
  std::uint64_t cache_bytes = 16 << 20;          ///< of SQLite's pages
  /// The agent's own losses from before this recording.
  std::map<std::string, std::uint64_t> base_losses;
  /// Room on the file system of a path, in bytes; nullopt: not known.
  std::function<std::optional<std::uint64_t>(const std::string& path)> free_bytes;
  /// Both are asked on the writer's thread.
  std::function<ContainerNames(std::uint64_t cgroup_id)> container_of;
  std::function<std::optional<std::string>(const model::ProcessKey&)> command_of;
};

/// How a recording stands. Each call that was given to the recorder is a row, waits, or is in a loss.
struct RecorderStatus {
  std::uint64_t nccl_calls = 0, cuda_calls = 0;  ///< rows that are committed
  std::uint64_t tcp_events = 0, sched_events = 0;
  std::map<std::string, std::uint64_t> losses;  ///< reason -> count; every reason, also 0
  std::string stopped;      ///< reason for which nothing is recorded any more; empty: it goes on
  std::string trouble;      ///< the message that belongs to it
  std::uint64_t bytes = 0;  ///< file and write-ahead log
};

/// Records calls into one SQLite file, on a thread of its own. What cannot be written is counted.
///
/// A recording that meets a full disk, its budget's end, a removed file or an error of SQLite ends there:
/// what was committed stays, what comes later is counted as lost for that reason.
class Recorder {
 public:
  /// Makes the file. `clock` must outlive the recorder.
  static Result<std::unique_ptr<Recorder>> create(const RecorderOptions& options,
                                                  const Clock& clock);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// Never waits for the disk. Returns whether another call would find room now; one that finds none is
  /// counted as lost.
  bool add(const call_event& call);
  void add(TcpEvent event);
  void add(SchedEvent event);

  /// What the agent knows now: processes, communicators, libraries, and its own losses.
  void update(std::shared_ptr<const model::Snapshot> snapshot);

  /// What the file says as its end_reason, in place of budget_reached, when its budget ends it; also when it
  /// already has.
  void explain_budget(std::string why);

  RecorderStatus status() const;

  /// Writes what waits and the end of the recording; `reason` such as "interrupted". Only the first call
  /// does something.
  RecorderStatus finish(const std::string& reason);

 private:
  class Writer;
  struct Batch {
    std::vector<RecordedCall> calls;
    std::vector<TcpEvent> tcp;
    std::vector<SchedEvent> sched;
    std::shared_ptr<const model::Snapshot> snapshot;
    std::uint64_t lost = 0;         ///< calls that found no room
    std::uint64_t lost_events = 0;  ///< retransmissions and waits that found none
    std::string budget_reason;      ///< empty: nothing new
    std::size_t events() const { return calls.size() + tcp.size() + sched.size(); }
    void clear();
  };

  Recorder(const RecorderOptions& options, const Clock& clock);
  bool has_room() const { return waiting_.events() < max_waiting_; }
  void run();

  const Clock& clock_;
  const std::size_t max_waiting_;
  std::unique_ptr<Writer> writer_;  ///< the thread's, once it runs
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Batch waiting_;
  RecorderStatus status_;
  bool stopping_ = false;
  std::string end_reason_;
  std::thread thread_;
};

}  // namespace ingero::record
