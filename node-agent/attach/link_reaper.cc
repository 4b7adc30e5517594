// SPDX-License-Identifier: Apache-2.0
#include "attach/link_reaper.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>

namespace ingero::attach {
namespace {

constexpr std::size_t kLinkThreads = 64;
constexpr std::size_t kEventThreads = 8;  // the kernel takes one after the other all the same
constexpr std::size_t kFewDescriptors = 8;

void append(std::vector<UniqueFd>& to, std::vector<UniqueFd>&& from) {
  std::move(from.begin(), from.end(), std::back_inserter(to));
}

UprobeLink::Descriptors descriptors_of(std::vector<UprobeLink> links) {
  UprobeLink::Descriptors all;
  for (UprobeLink& link : links) {
    auto one = link.release();
    append(all.links, std::move(one.links));
    append(all.events, std::move(one.events));
  }
  return all;
}

/// Runs in a child of a process with threads: system calls only. `order` is how to close, `sorted` are the
/// same descriptors and `parent`, which ends when the parent holds none of them any more: who closes last
/// waits for the kernel. Sockets and pipes go first: others wait for their ends.
[[noreturn]] void close_and_end(const std::vector<int>& order, const std::vector<int>& sorted,
                                int parent) {
  ::prctl(PR_SET_NAME, "ingero-detach");
  unsigned next = 0;
  for (const int fd : sorted) {
    const auto number = static_cast<unsigned>(fd);
    if (number > next) ::syscall(SYS_close_range, next, number - 1, 0);
    next = number + 1;
  }
  ::syscall(SYS_close_range, next, ~0U, 0);
  char nothing = 0;
  while (::read(parent, &nothing, 1) < 0 && errno == EINTR) {
  }
  for (const int fd : order) ::close(fd);
  ::_exit(0);
}

/// False: there is no child, and the descriptors are still held.
bool close_in_child(std::vector<UniqueFd>& fds) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return false;
  UniqueFd parent_is_done(ends[0]), held_by_parent(ends[1]);
  std::vector<int> order, sorted;
  for (const UniqueFd& fd : fds) order.push_back(fd.get());
  sorted = order;
  sorted.push_back(parent_is_done.get());
  std::sort(sorted.begin(), sorted.end());
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);  // the child finishes, whoever is told to end
  const pid_t child = ::fork();
  if (child == 0) close_and_end(order, sorted, parent_is_done.get());
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (child < 0) return false;
  fds.clear();
  return true;
}

void close_by_threads(std::vector<UniqueFd>& fds, std::size_t threads,
                      const std::atomic<bool>& interrupted) {
  const auto close_some = [&](std::size_t first, std::size_t step) {
    for (std::size_t i = first; i < fds.size() && !interrupted; i += step) fds[i].reset();
  };
  if (fds.size() <= kFewDescriptors) return close_some(0, 1);
  const std::size_t count = std::min(threads, fds.size());
  std::vector<std::thread> closers;
  for (std::size_t first = 0; first < count; ++first)
    closers.emplace_back(close_some, first, count);
  for (std::thread& closer : closers) closer.join();
}

}  // namespace

LinkReaper::LinkReaper() : thread_([this] { run(); }) {}

LinkReaper::~LinkReaper() {
  stop();
  close_together(std::move(left_), kEventThreads);
}

void LinkReaper::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

std::shared_future<void> LinkReaper::close(std::vector<UprobeLink> links,
                                           std::shared_ptr<const void> keep) {
  Batch batch{descriptors_of(std::move(links)), std::move(keep), {}};
  std::shared_future<void> detached = batch.detached.get_future().share();
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(batch));
  }
  wake_.notify_one();
  return detached;
}

void LinkReaper::leave_to_child(std::vector<UprobeLink> links, std::vector<UniqueFd> last) {
  interrupted_ = true;
  stop();
  std::vector<UniqueFd> all, events = std::move(left_);
  for (UprobeLink& link : links) {
    auto descriptors = link.release();
    append(all, std::move(descriptors.links));
    append(events, std::move(descriptors.events));
  }
  append(all, std::move(events));  // the programs first
  append(all, std::move(last));
  interrupted_ = false;
  if (!all.empty() && !close_in_child(all)) left_ = std::move(all);
}

void LinkReaper::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Batch batch = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    close_together(std::move(batch.descriptors.links), kLinkThreads);
    batch.detached.set_value();
    close_together(std::move(batch.descriptors.events), kEventThreads);
    batch.keep.reset();
    lock.lock();
  }
}

void LinkReaper::close_now(std::vector<UprobeLink> links) {
  auto descriptors = descriptors_of(std::move(links));
  std::atomic<bool> uninterrupted = false;
  close_by_threads(descriptors.links, kLinkThreads, uninterrupted);
  close_by_threads(descriptors.events, kEventThreads, uninterrupted);
}

/// What is left when it is interrupted goes to left_.
void LinkReaper::close_together(std::vector<UniqueFd> fds, std::size_t threads) {
  close_by_threads(fds, threads, interrupted_);
  std::erase_if(fds, [](const UniqueFd& fd) { return !fd; });
  append(left_, std::move(fds));
}

}  // namespace ingero::attach
