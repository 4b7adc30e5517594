// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "attach/uprobe_link.h"

namespace ingero::attach {

/// Closes links in the background and several at once: a perf uprobe takes up to 0.2 s to go on some
/// kernels, nearly all of it waiting.
class LinkReaper {
 public:
  LinkReaper();
  ~LinkReaper();  ///< returns when all links are closed
  LinkReaper(const LinkReaper&) = delete;
  LinkReaper& operator=(const LinkReaper&) = delete;

  /// The result is ready when the programs no longer run; what is left of perf probes goes afterwards, and
  /// `keep` with it.
  std::shared_future<void> close(std::vector<UprobeLink> links,
                                 std::shared_ptr<const void> keep = nullptr);

  /// Returns when nothing is left of the probes.
  static void close_now(std::vector<UprobeLink> links);

  /// Hands `links`, and what is still to be closed, to a child process, which closes them and ends: for the
  /// end of the agent, which nobody waits a minute for. Without a child they stay for the destructor. `last` are
  /// closed after all probes.
  void leave_to_child(std::vector<UprobeLink> links, std::vector<UniqueFd> last);

 private:
  struct Batch {
    UprobeLink::Descriptors descriptors;
    std::shared_ptr<const void> keep;
    std::promise<void> detached;
  };
  void run();
  void close_together(std::vector<UniqueFd> fds, std::size_t threads);
  void stop();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Batch> queue_;
  std::vector<UniqueFd> left_;  ///< by closers that were interrupted
  bool stopping_ = false;
  std::atomic<bool> interrupted_{false};
  std::thread thread_;
};

}  // namespace ingero::attach
