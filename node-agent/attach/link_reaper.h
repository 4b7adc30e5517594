// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

#include "attach/uprobe_link.h"

namespace ingero::attach {

/// Closes links in the background and many at once: a perf uprobe takes up to 0.2 s to go on some
/// kernels, nearly all of it waiting.
class LinkReaper {
 public:
  LinkReaper();
  ~LinkReaper();  ///< returns when all links are closed
  LinkReaper(const LinkReaper&) = delete;
  LinkReaper& operator=(const LinkReaper&) = delete;

  /// The result is ready when the programs no longer run; what is left of perf probes goes afterwards.
  std::shared_future<void> close(std::vector<UprobeLink> links);

 private:
  struct Batch {
    std::vector<UprobeLink> links;
    std::promise<void> detached;
  };
  void run();
  static void close_together(std::vector<UniqueFd> fds);

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Batch> queue_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace ingero::attach
