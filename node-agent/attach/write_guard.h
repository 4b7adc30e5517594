// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "attach/uprobe_link.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "model/identity.h"

namespace ingero::attach {

/// How it is known that a file with probes is about to get another content.
enum class GuardKind {
  kLease,   ///< the kernel lets a writer wait until the probes are gone
  kNotice,  ///< the kernel tells of a write that has happened: no lease is to be had here
  kNone,    ///< nobody can write to it: it lies below an overlay
};

/// An open file and its probes, which go before its content does. The probes are taken off as soon as
/// somebody opens the file for writing or truncates it; then the writer goes on. Thread safe.
class GuardedFile {
 public:
  GuardedFile(model::FileKey file, std::shared_ptr<const UniqueFd> fd, GuardKind kind)
      : file_(file), fd_(std::move(fd)), kind_(kind) {}
  ~GuardedFile();
  GuardedFile(const GuardedFile&) = delete;
  GuardedFile& operator=(const GuardedFile&) = delete;

  const model::FileKey& file() const { return file_; }
  int fd() const { return fd_->get(); }
  GuardKind kind() const { return kind_; }

  /// Takes probes of the file. False: the content is about to change, or has changed; the probes are closed.
  bool arm(std::vector<UprobeLink> links);
  /// Gives the probes up: the caller closes them, and keeps this object until they are gone.
  std::vector<UprobeLink> disarm();
  /// The lease, for who closes the probes after the agent: it ends with the last descriptor.
  UniqueFd leave_lease();
  /// Somebody writes, or would like to.
  bool is_broken() const;

 private:
  friend class WriteGuards;

  const model::FileKey file_;
  const std::shared_ptr<const UniqueFd> fd_;
  const GuardKind kind_;
  mutable std::mutex mutex_;
  std::vector<UprobeLink> links_;
  bool armed_ = false;   ///< arm() is done
  bool broken_ = false;  ///< no probes any more
  bool left_ = false;    ///< the lease is somebody else's
};

/// Watches over files with probes. Uprobes are kept by offset: where a file is overwritten in place, the
/// kernel would write breakpoints into the middle of the new instructions of whoever maps it next. A thread
/// of its own answers, since a writer waits for it.
class WriteGuards {
 public:
  /// Called on the guard's thread when a file's probes are gone.
  using Written = std::function<void(const model::FileKey&)>;

  explicit WriteGuards(Written written);
  ~WriteGuards() { stop(); }
  WriteGuards(const WriteGuards&) = delete;
  WriteGuards& operator=(const WriteGuards&) = delete;

  /// Answers no more: whoever waits for a file goes on when its last owner lets go of it.
  void stop();

  /// From here on the file's content stays until the file is broken. ETXTBSY: somebody has it open for writing.
  /// From any thread.
  Result<std::shared_ptr<GuardedFile>> guard(const model::FileKey& file,
                                             std::shared_ptr<const UniqueFd> fd);

 private:
  void run();
  void take_notices();
  void check_leases();
  void break_guard(const std::shared_ptr<GuardedFile>& file);
  std::vector<std::shared_ptr<GuardedFile>> leased_files();
  void forget_unwatched();

  const Written written_;
  UniqueFd notices_;  ///< inotify
  UniqueFd stop_;
  std::mutex mutex_;
  std::list<std::weak_ptr<GuardedFile>> files_;
  std::unordered_map<int, std::weak_ptr<GuardedFile>> watched_;  ///< by inotify's number
  int thread_id_ = 0;
  std::thread thread_;
};

}  // namespace ingero::attach
