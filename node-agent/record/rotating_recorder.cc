// SPDX-License-Identifier: Apache-2.0
#include "record/rotating_recorder.h"

#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "record/state_rows.h"

namespace ingero::record {
namespace {

constexpr std::uint64_t kBytesPerCall = 40;

std::uint64_t size_of(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 ? static_cast<std::uint64_t>(status.st_size) : 0;
}

std::uint32_t files_within(std::uint64_t max_bytes, std::uint32_t files) {
  const std::uint64_t most = max_bytes / RotatingRecorder::kMinFileBytes;
  return static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(files, 1, std::max<std::uint64_t>(most, 1)));
}

/// So that a file is worth its making.
std::uint64_t least_room(std::uint64_t share) { return share / 4; }

std::uint64_t lost_calls(const RecorderStatus& status) {
  std::uint64_t lost = 0;
  for (const auto reason : {kWriterBehind, kDiskFull, kBudgetReached, kFileRemoved, kWriteError}) {
    const auto found = status.losses.find(std::string(reason));
    if (found != status.losses.end()) lost += found->second;
  }
  return lost;
}

}  // namespace

RotatingRecorder::RotatingRecorder(RotatingOptions options, const Clock& clock)
    : options_(std::move(options)),
      clock_(clock),
      next_number_(options_.first_number),
      files_(std::move(options_.earlier_files)),
      last_snapshot_(std::move(options_.snapshot)) {
  options_.files = files_within(options_.max_bytes, options_.files);
  share_ = options_.max_bytes / options_.files;
}

Result<std::unique_ptr<RotatingRecorder>> RotatingRecorder::create(RotatingOptions options,
                                                                   const Clock& clock) {
  std::unique_ptr<RotatingRecorder> recorder(new RotatingRecorder(std::move(options), clock));
  if (auto begun = recorder->begin_file(); !begun) return fail(begun.error());
  return recorder;
}

RotatingRecorder::~RotatingRecorder() { finish("ended"); }

bool RotatingRecorder::rotates(std::uint64_t max_bytes, std::uint32_t files) {
  return files_within(max_bytes, files) > 1;
}

bool RotatingRecorder::has_room(std::uint64_t max_bytes, std::uint32_t files, std::uint64_t bytes) {
  return rotates(max_bytes, files) || bytes + least_room(max_bytes) <= max_bytes;
}

Status RotatingRecorder::begin_file() {
  if (!has_room(options_.max_bytes, options_.files, bytes()))
    return fail(
        Error{"begin file", "", "the recording's earlier files have taken its size", "", 0});
  make_room();
  auto path = options_.path_of(next_number_);
  if (!path) return fail(path.error());
  RecorderOptions options = options_.recorder;
  options.path = *path;
  // What bursts can use beyond the file's share, less what still waits to be written to the last one.
  const std::uint64_t others = bytes() + (current_ ? options.max_waiting * kBytesPerCall : 0);
  const std::uint64_t room = options_.max_bytes - std::min(others, options_.max_bytes);
  const std::uint64_t most = options_.max_bytes - (options_.files == 1 ? 0 : share_ / 2);
  options.max_bytes = std::max(std::min(room, most), least_room(share_));
  rotate_at_ = std::min(share_, options.max_bytes / 4 * 3);
  if (last_snapshot_) options.base_losses = last_snapshot_->events_lost;
  auto recorder = Recorder::create(options, clock_);
  if (!recorder) return fail(recorder.error());
  ++next_number_;
  files_.push_back(std::move(*path));
  retire(std::exchange(current_, std::move(*recorder)));
  if (last_snapshot_) current_->update(last_snapshot_);
  return {};
}

std::uint64_t RotatingRecorder::bytes() const {
  std::uint64_t bytes = 0;
  for (const std::string& file : files_) bytes += size_of(file) + size_of(file + "-wal");
  return bytes;
}

/// For one more file. A burst may have made the last ones larger than their share.
void RotatingRecorder::make_room() {
  if (options_.files == 1) return;  // the first calls are kept
  const auto is_full = [&] {
    return files_.size() >= options_.files || bytes() + share_ / 2 > options_.max_bytes;
  };
  // Not the one that is being written: there may be no next one.
  while (files_.size() > (current_ ? 1 : 0) && is_full()) {
    // A file whose end is still being written must not come back.
    settle(true);
    for (const char* suffix : {"", "-wal", "-shm"}) ::unlink((files_.front() + suffix).c_str());
    files_.erase(files_.begin());
  }
}

void RotatingRecorder::retire(std::unique_ptr<Recorder> recorder) {
  if (!recorder) return;
  auto finishing = std::make_unique<Finishing>();
  finishing->recorder = std::move(recorder);
  finishing->thread = std::thread([raw = finishing.get()] {
    raw->recorder->finish(kNextFile);
    raw->done = true;
  });
  finishing_.push_back(std::move(finishing));
}

/// Takes over what finished files have counted.
void RotatingRecorder::settle(bool wait) {
  std::erase_if(finishing_, [&](const auto& finishing) {
    if (!wait && !finishing->done) return false;
    finishing->thread.join();
    count(finishing->recorder->status());
    return true;
  });
}

void RotatingRecorder::count(const RecorderStatus& status) {
  finished_calls_ += status.nccl_calls + status.cuda_calls;
  finished_lost_ += lost_calls(status);
}

void RotatingRecorder::update(std::shared_ptr<const model::Snapshot> snapshot) {
  last_snapshot_ = snapshot;
  current_->update(std::move(snapshot));
}

void RotatingRecorder::tick() {
  settle(false);
  if (options_.files == 1 || !trouble_.empty()) return;
  const RecorderStatus status = current_->status();
  const bool full = status.stopped == kBudgetReached;
  if (!full && (!status.stopped.empty() || status.bytes < rotate_at_)) return;
  rotate();
}

void RotatingRecorder::rotate() {
  if (auto begun = begin_file(); !begun) {
    // The newest file still has some room; what comes after it is counted there.
    trouble_ = "no next file: " + begun.error().message();
    spdlog::error("the recording has {}", trouble_);
    current_->explain_budget(trouble_);
  }
}

RotatingStatus RotatingRecorder::status() const {
  RotatingStatus all;
  const RecorderStatus now = current_ ? current_->status() : RecorderStatus{};
  all.path = files_.empty() ? "" : files_.back();
  all.files = static_cast<std::uint32_t>(files_.size());
  all.bytes = bytes();
  all.calls = finished_calls_ + now.nccl_calls + now.cuda_calls;
  all.lost = finished_lost_ + lost_calls(now);
  for (const auto& finishing : finishing_) {
    const RecorderStatus before = finishing->recorder->status();
    all.calls += before.nccl_calls + before.cuda_calls;
    all.lost += lost_calls(before);
  }
  // Full, with a next file to come: it goes on.
  const bool goes_on = now.stopped == kBudgetReached && options_.files > 1 && trouble_.empty();
  if (!goes_on) {
    const bool explained = now.stopped == kBudgetReached && !trouble_.empty();
    all.ended = explained ? trouble_ : now.trouble;
    all.stopped = trouble_.empty() || now.stopped.empty() ? now.stopped : std::string(kWriteError);
  }
  return all;
}

RotatingStatus RotatingRecorder::finish(const std::string& reason) {
  if (current_) static_cast<void>(current_->finish(reason));
  settle(true);
  return status();
}

}  // namespace ingero::record
