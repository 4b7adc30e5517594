// SPDX-License-Identifier: Apache-2.0
#include "attach/link_reaper.h"

namespace ingero::attach {

LinkReaper::LinkReaper() : thread_([this] { run(); }) {}

LinkReaper::~LinkReaper() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void LinkReaper::close(std::vector<UprobeLink> links) {
  if (links.empty()) return;
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(links));
  }
  wake_.notify_one();
}

void LinkReaper::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    std::vector<UprobeLink> links = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    links.clear();
    lock.lock();
  }
}

}  // namespace ingero::attach
