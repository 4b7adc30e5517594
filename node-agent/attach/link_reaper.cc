// SPDX-License-Identifier: Apache-2.0
#include "attach/link_reaper.h"

#include <algorithm>
#include <iterator>

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

std::shared_future<void> LinkReaper::close(std::vector<UprobeLink> links) {
  Batch batch{std::move(links), {}};
  std::shared_future<void> detached = batch.detached.get_future().share();
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(batch));
  }
  wake_.notify_one();
  return detached;
}

void LinkReaper::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Batch batch = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    std::vector<UniqueFd> fds, events;
    for (UprobeLink& link : batch.links) {
      auto descriptors = link.release();
      std::move(descriptors.links.begin(), descriptors.links.end(), std::back_inserter(fds));
      std::move(descriptors.events.begin(), descriptors.events.end(), std::back_inserter(events));
    }
    close_together(std::move(fds));
    batch.detached.set_value();
    close_together(std::move(events));
    lock.lock();
  }
}

void LinkReaper::close_together(std::vector<UniqueFd> fds) {
  if (fds.size() <= kFewDescriptors) return fds.clear();
  const std::size_t count = std::min(kMaxThreads, fds.size());
  std::vector<std::thread> threads;
  for (std::size_t first = 0; first < count; ++first) {
    threads.emplace_back([&fds, first, count] {
      for (std::size_t i = first; i < fds.size(); i += count) fds[i].reset();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace ingero::attach
