// SPDX-License-Identifier: Apache-2.0
#include "attach/link_reaper.h"

#include <algorithm>

namespace ingero::attach {
namespace {

constexpr std::size_t kMaxThreads = 64;
constexpr std::size_t kFewDescriptors = 8;

}  // namespace

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
    close_together(std::move(links));
    lock.lock();
  }
}

void LinkReaper::close_together(std::vector<UprobeLink> links) {
  std::vector<UniqueFd> fds;
  for (UprobeLink& link : links) {
    for (UniqueFd& fd : link.release()) fds.push_back(std::move(fd));
  }
  if (fds.size() <= kFewDescriptors) return;  // closed here, one after the other
  const std::size_t count = std::min(kMaxThreads, fds.size() / 2);
  std::vector<std::thread> threads;
  for (std::size_t first = 0; first < count; ++first) {
    threads.emplace_back([&fds, first, count] {
      for (std::size_t i = first; i < fds.size(); i += count) fds[i].reset();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace ingero::attach
