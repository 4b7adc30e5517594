// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <unordered_map>
#include <vector>

#include "attach/bpf_object.h"
#include "attach/link_reaper.h"
#include "attach/write_guard.h"
#include "base/result.h"
#include "model/functions.h"
#include "model/identity.h"

namespace ingero::attach {

/// What to probe in one file.
struct LibraryTarget {
  model::FileKey file;
  std::uint32_t index = 0;  ///< of the library, travels in the cookie; 0: none
  struct Point {
    const model::ApiFunction* function = nullptr;
    std::uint64_t offset = 0;  ///< in the file
  };
  std::vector<Point> points;
};

/// The held probes: one set per kernel inode, however many containers map it. For one thread.
class LibraryProbes {
 public:
  /// `written`: a file's probes are gone because somebody opened it for writing. Called on another thread.
  LibraryProbes(
      const BpfObject& bpf, model::AttachMethod method,
      WriteGuards::Written written = [](const model::FileKey&) {})
      : bpf_(bpf), method_(method), guards_(std::make_shared<WriteGuards>(std::move(written))) {}
  ~LibraryProbes();  ///< returns when all probes are gone
  LibraryProbes(const LibraryProbes&) = delete;
  LibraryProbes& operator=(const LibraryProbes&) = delete;

  /// Whether an open file has the content that the target was made of.
  using Unchanged = std::function<bool(int fd)>;
  /// What attaches all points of a target through its open file, or none: for any thread, since it takes
  /// milliseconds and may wait for the file's pages. The file is guarded before, and the probes are in place
  /// when it returns. EBUSY: the file's last probes are still being removed (old and new ones together would
  /// count each call twice). ETXTBSY: somebody writes to the file, or has written.
  using Attach = std::function<Result<std::shared_ptr<GuardedFile>>()>;
  Attach prepare(const LibraryTarget& target, std::shared_ptr<const UniqueFd> fd,
                 Unchanged unchanged);

  /// Keeps a file that is not attached, and its probes. False: they are gone already, for a writer.
  bool hold(std::shared_ptr<GuardedFile> file);
  /// Removes probes that are not wanted any more, in the background.
  void discard(std::shared_ptr<GuardedFile> file) { close(std::move(file)); }

  /// The file has its probes, and no writer can get at it before they are gone.
  bool is_leased(const model::FileKey& file) const;

  /// What the probes of a target hold open.
  std::size_t descriptors_of(const LibraryTarget& target) const;

  /// Removes the probes of a file, also of one whose attach failed; the closing, slow on some kernels, happens in the background.
  void detach(const model::FileKey& file);

  /// For the end of the agent: a child process takes the probes away, and nobody waits for it: perf probes go
  /// slowly, and a program that calls without pause makes the others slow too.
  void leave_to_child();

  bool attached(const model::FileKey& file) const { return files_.contains(file); }
  std::size_t size() const { return files_.size(); }

 private:
  void close(std::shared_ptr<GuardedFile> file);

  const BpfObject& bpf_;
  model::AttachMethod method_;
  std::shared_ptr<WriteGuards> guards_;  ///< also of attaches that are under way
  std::unordered_map<model::FileKey, std::shared_ptr<GuardedFile>, model::IdentityHash> files_;
  std::unordered_map<model::FileKey, std::shared_future<void>, model::IdentityHash> closing_;
  LinkReaper reaper_;
};

}  // namespace ingero::attach
