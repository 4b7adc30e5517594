// SPDX-License-Identifier: Apache-2.0
#include "record/recorder.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>

#include "record/call_rows.h"
#include "record/recording_file.h"
#include "record/state_rows.h"

namespace ingero::record {
namespace {

using namespace std::chrono_literals;

constexpr auto kCommitInterval = 100ms;
constexpr std::size_t kWakeAt = 16 << 10;
constexpr std::size_t kBytesPerEvent = 128;  // more than one takes, log included

constexpr std::string_view kTcpRow =
    "INSERT INTO tcp_events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
constexpr std::string_view kSchedRow =
    "INSERT INTO sched_events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)";

std::optional<std::string_view> name_of(SleepState state) {
  switch (state) {
    case SleepState::kInterruptible: return "interruptible";
    case SleepState::kUninterruptible: return "uninterruptible";
    case SleepState::kStopped: return "stopped";
    case SleepState::kUnknown: break;
  }
  return std::nullopt;
}

bool is_disk_full(sqlite3* database, int code) {
  return (code & 0xff) == SQLITE_FULL || sqlite3_system_errno(database) == ENOSPC ||
         sqlite3_system_errno(database) == EDQUOT;
}

}  // namespace

/// The thread's side: everything that touches the file.
class Recorder::Writer {
 public:
  static Result<std::unique_ptr<Writer>> create(const RecorderOptions& options, const Clock& clock);

  /// Commits the batch, or counts it.
  void write(const Batch& batch, RecorderStatus& status);
  static void lose(const Batch& batch, RecorderStatus& status);
  void end(const std::string& reason, RecorderStatus& status);

 private:
  Writer(RecordingFile file, CallRows calls, StateRows state, Statement tcp, Statement sched,
         const RecorderOptions& options)
      : file_(std::move(file)),
        calls_(std::move(calls)),
        state_(std::move(state)),
        tcp_(std::move(tcp)),
        sched_(std::move(sched)),
        max_bytes_(options.max_bytes),
        base_losses_(options.base_losses) {}

  sqlite3* database() const { return file_.database(); }
  /// Of the agent's own losses by this reason, those that are older than the recording.
  std::uint64_t lost_before(const std::string& reason, std::uint64_t now) const {
    const auto before = base_losses_.find(reason);
    return before == base_losses_.end() ? 0 : std::min(before->second, now);
  }
  bool is_over(const Batch& batch, RecorderStatus& status);
  int write_rows(const Batch& batch);
  int write_tcp(const TcpEvent& event);
  int write_sched(const SchedEvent& event);
  Status commit(const Batch& batch, const RecorderStatus& status);
  Status write_end(const std::string& reason, const RecorderStatus& status);
  void stop(const std::string& reason, const std::string& trouble, RecorderStatus& status);
  /// Of a recording that has stopped: what its file says.
  const std::string& end_reason(const RecorderStatus& status) const {
    const bool explained = status.stopped == kBudgetReached && !budget_reason_.empty();
    return explained ? budget_reason_ : status.stopped;
  }
  void rollback() { sqlite3_exec(database(), "ROLLBACK", nullptr, nullptr, nullptr); }

  RecordingFile file_;
  CallRows calls_;
  StateRows state_;
  Statement tcp_, sched_;
  std::uint64_t max_bytes_;
  std::string budget_reason_;
  std::map<std::string, std::uint64_t> base_losses_;
};

Result<std::unique_ptr<Recorder::Writer>> Recorder::Writer::create(const RecorderOptions& options,
                                                                   const Clock& clock) {
  FileTuning tuning;
  tuning.cache_bytes = options.cache_bytes;
  // The log is a part of the budget.
  if (options.max_bytes != 0)
    tuning.log_bytes = std::clamp<std::uint64_t>(options.max_bytes / 8, 256 << 10, 8 << 20);
  auto file = RecordingFile::create(options.path, options.owner, options.free_bytes, tuning);
  if (!file) return fail(file.error());
  auto calls = CallRows::create(file->database());
  if (!calls) return fail(calls.error());
  auto state = StateRows::create(file->database(), clock, options.container_of, options.command_of);
  if (!state) return fail(state.error());
  auto tcp = Statement::create(file->database(), kTcpRow);
  if (!tcp) return fail(tcp.error());
  auto sched = Statement::create(file->database(), kSchedRow);
  if (!sched) return fail(sched.error());
  if (auto begun = state->begin(options.facts); !begun) return fail(begun.error());
  return std::unique_ptr<Writer>(new Writer(std::move(*file), std::move(*calls), std::move(*state),
                                            std::move(*tcp), std::move(*sched), options));
}

bool Recorder::Writer::is_over(const Batch& batch, RecorderStatus& status) {
  if (!status.stopped.empty()) return true;
  const std::uint64_t wanted = batch.events() * kBytesPerEvent;
  if (!file_.is_in_place()) {
    stop(std::string(kFileRemoved), fmt::format("{} was removed or replaced", file_.path()),
         status);
  } else if (max_bytes_ != 0 && file_.bytes() + wanted / 2 > max_bytes_) {
    stop(std::string(kBudgetReached), fmt::format("{} has reached its budget", file_.path()),
         status);
  } else if (!file_.has_room_for(wanted)) {
    stop(std::string(kDiskFull), fmt::format("no room left for {}", file_.path()), status);
  }
  return !status.stopped.empty();
}

void Recorder::Writer::stop(const std::string& reason, const std::string& trouble,
                            RecorderStatus& status) {
  status.stopped = reason;
  status.trouble = trouble;
  spdlog::error("recording ended: {}", trouble);
  if (reason != kFileRemoved) static_cast<void>(write_end(end_reason(status), status));
}

/// Calls by the reason for which the recording ended; what is beside them by one reason of its own, so that
/// calls and their losses always add up.
void Recorder::Writer::lose(const Batch& batch, RecorderStatus& status) {
  status.losses[status.stopped] += batch.calls.size();
  status.losses[std::string(kEventsLost)] += batch.tcp.size() + batch.sched.size();
}

void Recorder::Writer::write(const Batch& batch, RecorderStatus& status) {
  status.losses[std::string(kWriterBehind)] += batch.lost;
  status.losses[std::string(kEventsLost)] += batch.lost_events;
  if (batch.snapshot) {
    for (const auto& [reason, count] : batch.snapshot->events_lost)
      status.losses[reason] = count - lost_before(reason, count);
  }
  const bool news = batch.snapshot || !batch.budget_reason.empty();
  if (!batch.budget_reason.empty()) budget_reason_ = batch.budget_reason;
  if (is_over(batch, status)) {
    lose(batch, status);
    if (news && status.stopped != kFileRemoved)
      static_cast<void>(write_end(end_reason(status), status));  // the agent may be killed any time
    return;
  }
  if (batch.events() == 0 && !batch.snapshot && batch.lost == 0 && batch.lost_events == 0) return;
  if (auto written = commit(batch, status); !written) {
    const bool full = is_disk_full(database(), written.error().code);
    rollback();
    stop(std::string(full ? kDiskFull : kWriteError), written.error().message(), status);
    lose(batch, status);
    return;
  }
  status.nccl_calls = calls_.nccl_calls();
  status.cuda_calls = calls_.cuda_calls();
  status.tcp_events += batch.tcp.size();
  status.sched_events += batch.sched.size();
  status.bytes = file_.bytes();
}

Status Recorder::Writer::commit(const Batch& batch, const RecorderStatus& status) {
  const auto failed = [&] {
    return fail(database_error(database(), "write to the recording", file_.path()));
  };
  if (auto begun = execute(database(), "BEGIN", "begin a transaction"); !begun) return begun;
  if (write_rows(batch) != SQLITE_DONE) return failed();
  if (batch.snapshot && state_.write(*batch.snapshot, calls_.cgroups()) != SQLITE_DONE)
    return failed();
  for (const auto& [process, cgroup] : calls_.new_processes())
    if (state_.write_process(process, cgroup) != SQLITE_DONE) return failed();
  calls_.new_processes().clear();
  if (state_.write_progress(status.losses, calls_.nccl_calls(), calls_.cuda_calls()) != SQLITE_DONE)
    return failed();
  if (sqlite3_exec(database(), "COMMIT", nullptr, nullptr, nullptr) != SQLITE_OK) return failed();
  return {};
}

int Recorder::Writer::write_rows(const Batch& batch) {
  int code = SQLITE_DONE;
  for (const RecordedCall& call : batch.calls)
    if (code = calls_.write(call); code != SQLITE_DONE) return code;
  for (const TcpEvent& event : batch.tcp) {
    if (code = write_tcp(event); code != SQLITE_DONE) return code;
    if (event.cgroup_id) calls_.note_cgroup(*event.cgroup_id);
  }
  for (const SchedEvent& event : batch.sched) {
    if (code = write_sched(event); code != SQLITE_DONE) return code;
    calls_.note_cgroup(event.cgroup_id);
  }
  return code;
}

int Recorder::Writer::write_tcp(const TcpEvent& event) {
  return tcp_.bind(event.unix_ns)
      .bind(std::string_view(event.event))
      .bind(std::string_view(event.saddr))
      .bind(std::string_view(event.daddr))
      .bind(std::uint32_t{event.sport})
      .bind(std::uint32_t{event.dport})
      .bind(event.seq)
      .bind(std::string_view(event.state))
      .bind(event.netns)
      .bind(event.cgroup_id)
      .bind(event.process ? std::optional(event.process->tgid) : std::nullopt)
      .bind(event.process ? std::optional(event.process->start_ns) : std::nullopt)
      .run();
}

int Recorder::Writer::write_sched(const SchedEvent& event) {
  return sched_.bind(event.unix_ns)
      .bind(event.duration_ns)
      .bind(std::string_view(event.off_cpu ? "off_cpu" : "run_queue_wait"))
      .bind(event.cpu)
      .bind(event.process.tgid)
      .bind(event.tid)
      .bind(event.process.start_ns)
      .bind(event.cgroup_id)
      .bind(name_of(event.state))
      .run();
}

Status Recorder::Writer::write_end(const std::string& reason, const RecorderStatus& status) {
  auto written = execute(database(), "BEGIN", "begin a transaction");
  if (written &&
      state_.write_end(reason, status.losses, status.nccl_calls, status.cuda_calls) != SQLITE_DONE)
    written = fail(database_error(database(), "write the end of the recording", file_.path()));
  if (written) written = execute(database(), "COMMIT", "write the end of the recording");
  if (!written) rollback();
  return written;
}

void Recorder::Writer::end(const std::string& reason, RecorderStatus& status) {
  const bool removed = status.stopped == kFileRemoved;
  if (!removed) {
    const std::string& why = status.stopped.empty() ? reason : end_reason(status);
    auto written = write_end(why, status);
    if (!written) {
      file_.release_reserve();
      written = write_end(why, status);
    }
    if (!written && status.trouble.empty()) status.trouble = written.error().message();
  }
  const auto closed = file_.close();
  if (!closed && !removed && status.trouble.empty()) status.trouble = closed.error().message();
  if (!removed) status.bytes = file_.bytes();
}

// ---- the event thread's side -----------------------------------------------------------------------

void Recorder::Batch::clear() {
  calls.clear();
  tcp.clear();
  sched.clear();
  snapshot.reset();
  lost = 0;
  lost_events = 0;
  budget_reason.clear();
}

Recorder::Recorder(const RecorderOptions& options, const Clock& clock)
    : clock_(clock), max_waiting_(options.max_waiting) {
  for (const std::string_view reason : kRecorderLosses) status_.losses[std::string(reason)] = 0;
}

Result<std::unique_ptr<Recorder>> Recorder::create(const RecorderOptions& options,
                                                   const Clock& clock) {
  auto writer = Writer::create(options, clock);
  if (!writer) return fail(writer.error());
  std::unique_ptr<Recorder> recorder(new Recorder(options, clock));
  recorder->writer_ = std::move(*writer);
  recorder->thread_ = std::thread([raw = recorder.get()] { raw->run(); });
  return recorder;
}

Recorder::~Recorder() { finish("ended"); }

bool Recorder::add(const call_event& call) {
  const auto unix_ns = static_cast<std::int64_t>(clock_.unix_from_monotonic(call.header.time_ns));
  bool wake = false, room = false;
  {
    const std::lock_guard lock(mutex_);
    if (has_room()) waiting_.calls.push_back({call, unix_ns});
    else ++waiting_.lost;
    wake = waiting_.calls.size() == kWakeAt;
    room = has_room();
  }
  if (wake) changed_.notify_one();
  return room;
}

void Recorder::add(TcpEvent event) {
  const std::lock_guard lock(mutex_);
  if (has_room()) waiting_.tcp.push_back(std::move(event));
  else ++waiting_.lost_events;
}

void Recorder::add(SchedEvent event) {
  const std::lock_guard lock(mutex_);
  if (has_room()) waiting_.sched.push_back(event);
  else ++waiting_.lost_events;
}

void Recorder::update(std::shared_ptr<const model::Snapshot> snapshot) {
  const std::lock_guard lock(mutex_);
  waiting_.snapshot = std::move(snapshot);
}

void Recorder::explain_budget(std::string why) {
  const std::lock_guard lock(mutex_);
  waiting_.budget_reason = std::move(why);
}

RecorderStatus Recorder::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

RecorderStatus Recorder::finish(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (end_reason_.empty()) end_reason_ = reason;
    stopping_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
  return status();
}

void Recorder::run() {
  Batch batch;
  RecorderStatus status = this->status();
  while (true) {
    bool stopping = false;
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, kCommitInterval,
                        [this] { return stopping_ || waiting_.calls.size() >= kWakeAt; });
      std::swap(batch, waiting_);
      stopping = stopping_;
    }
    writer_->write(batch, status);
    batch.clear();
    if (stopping) writer_->end(end_reason_, status);
    {
      const std::lock_guard lock(mutex_);
      status_ = status;
      if (stopping) break;
    }
  }
}

}  // namespace ingero::record
