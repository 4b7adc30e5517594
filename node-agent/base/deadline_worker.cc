// SPDX-License-Identifier: Apache-2.0
#include "base/deadline_worker.h"

#include <pthread.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <exception>
#include <list>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>

namespace ingero {
namespace {

using Clock = std::chrono::steady_clock;

tl::unexpected<Error> refuse(const DeadlineWorker::Job& job, std::string cause) {
  return fail(Error{job.operation, job.object, std::move(cause), "tried again later", EBUSY});
}

Error problem_of(const DeadlineWorker::Job& job, const std::exception& problem) {
  return Error{job.operation, job.object, problem.what(), "", 0};
}

}  // namespace

/// Lives as long as the last thread: a stuck one may come back after the worker has gone.
class DeadlineWorker::State : public std::enable_shared_from_this<State> {
 public:
  State(Executor executor, DeadlineWorkerOptions options)
      : executor_(std::move(executor)), options_(options) {}

  Status submit(Job job, Work work, Failed failed) {
    const std::lock_guard lock(mutex_);
    if (auto accepted = accept(job); !accepted) {
      ++timed_.refused;
      return accepted;
    }
    const Key key = job.key;
    auto& waiting = waiting_[key];
    if (waiting.empty()) turns_.push_back(key);
    waiting.push_back({std::move(job), std::move(work), std::move(failed)});
    ++queued_;
    return start_thread(waiting);
  }

  void stop() {
    std::map<Key, std::deque<Waiting>> dropped;  // destroyed outside of the lock
    std::thread watch;
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      dropped.swap(waiting_);
      turns_.clear();
      queued_ = 0;
      watch.swap(watch_);
    }
    work_came_.notify_all();
    deadline_came_.notify_all();
    if (watch.joinable()) watch.join();  // never runs a job
  }

  bool stuck(Key key) const {
    const std::lock_guard lock(mutex_);
    return is_stuck(key);
  }

  Stats stats() const {
    const std::lock_guard lock(mutex_);
    Stats stats = timed_;
    stats.queued = queued_;
    stats.stuck = stuck_;
    stats.running = running_.size() - stuck_;
    return stats;
  }

 private:
  struct Waiting {
    Job job;
    Work work;
    Failed failed;
  };
  struct Running {
    Job job;
    Failed failed;
    Clock::time_point deadline;
    bool given_up = false;
  };

  Status accept(const Job& job) const {
    if (is_stuck(job.key)) return refuse(job, "an earlier job of the same owner still hangs");
    if (stuck_ >= options_.max_stuck)
      return refuse(job, std::to_string(stuck_) + " jobs of others hang");
    const auto waiting = waiting_.find(job.key);
    if (waiting != waiting_.end() && waiting->second.size() >= options_.max_queued_key)
      return refuse(job, "too many jobs of the same owner wait");
    if (queued_ >= options_.max_queued) return refuse(job, "too many jobs wait");
    return {};
  }

  bool is_stuck(Key key) const {
    return std::any_of(running_.begin(), running_.end(), [key](const Running& running) {
      return running.given_up && running.job.key == key;
    });
  }

  bool is_running(Key key) const {
    return std::any_of(running_.begin(), running_.end(),
                       [key](const Running& running) { return running.job.key == key; });
  }

  /// For the job that was queued last. With no thread at all, it is taken back.
  Status start_thread(std::deque<Waiting>& waiting) {
    if (idle_ >= queued_ || threads_ >= options_.threads) {
      work_came_.notify_one();
      return {};
    }
    try {
      if (!watch_.joinable()) watch_ = std::thread([self = this] { self->watch(); });
      std::thread([self = shared_from_this()] { self->serve(); }).detach();
      ++threads_;
      return {};
    } catch (const std::system_error& problem) {
      if (threads_ > 0) return {};
      const Error error = problem_of(waiting.back().job, problem);
      forget_last(waiting);
      return fail(error);
    }
  }

  void forget_last(std::deque<Waiting>& waiting) {
    const Key key = waiting.back().job.key;
    waiting.pop_back();
    --queued_;
    if (!waiting.empty()) return;
    std::erase(turns_, key);
    waiting_.erase(key);
  }

  /// The next job of the next key that has none running; keys take turns.
  std::optional<Waiting> take() {
    const auto turn =
        std::find_if(turns_.begin(), turns_.end(), [this](Key key) { return !is_running(key); });
    if (turn == turns_.end()) return std::nullopt;
    const Key key = *turn;
    turns_.erase(turn);
    const auto waiting = waiting_.find(key);
    Waiting next = std::move(waiting->second.front());
    waiting->second.pop_front();
    --queued_;
    if (waiting->second.empty()) {
      waiting_.erase(waiting);
    } else {
      turns_.push_back(key);
    }
    return next;
  }

  /// A thread of the pool, until the end or until one of its jobs is given up.
  void serve() {
    pthread_setname_np(pthread_self(), "ingero-worker");
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      std::optional<Waiting> next = take();
      if (!next) {
        ++idle_;
        work_came_.wait(lock);
        --idle_;
        continue;
      }
      if (!run(std::move(*next), lock)) return;
    }
    --threads_;
  }

  /// False: it was given up, and the thread with it.
  bool run(Waiting next, std::unique_lock<std::mutex>& lock) {
    const auto deadline = Clock::now() + next.job.deadline;
    const auto job =
        running_.insert(running_.end(), {std::move(next.job), std::move(next.failed), deadline});
    deadline_came_.notify_one();
    lock.unlock();
    std::function<void()> deliver = result_of(next.work, *job);
    next.work = nullptr;  // what the job owns may take as long to release as to use
    lock.lock();
    const bool given_up = job->given_up;
    if (given_up) --stuck_;
    if (!given_up) post(std::move(deliver));
    Running ended = std::move(*job);
    running_.erase(job);
    work_came_.notify_one();  // the key's next job may be taken
    lock.unlock();
    ended.failed = nullptr;  // the caller's: not under the lock
    if (given_up) return false;
    lock.lock();
    return true;
  }

  static std::function<void()> result_of(const Work& work, const Running& running) {
    try {
      return work();
    } catch (const std::exception& problem) {
      return [failed = running.failed, error = problem_of(running.job, problem)] { failed(error); };
    }
  }

  /// Reports what is past its deadline.
  void watch() {
    pthread_setname_np(pthread_self(), "ingero-deadline");
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      const auto now = Clock::now();
      auto next = Clock::time_point::max();
      for (Running& running : running_) {
        if (running.given_up) continue;
        if (running.deadline <= now) {
          give_up(running);
        } else {
          next = std::min(next, running.deadline);
        }
      }
      if (next == Clock::time_point::max()) {
        deadline_came_.wait(lock);
      } else {
        deadline_came_.wait_until(lock, next);
      }
    }
  }

  void give_up(Running& running) {
    running.given_up = true;
    ++stuck_;
    --threads_;
    ++timed_.timed_out;
    post([failed = running.failed, error = timeout_of(running.job)] { failed(error); });
    refuse_waiting(running.job.key);
    replace_thread();
  }

  static Error timeout_of(const Job& job) {
    return Error{job.operation, job.object,
                 fmt::format("no end within {} ms", job.deadline.count()), "", ETIMEDOUT};
  }

  /// What waits behind a stuck job has no better prospects.
  void refuse_waiting(Key key) {
    const auto waiting = waiting_.find(key);
    if (waiting == waiting_.end()) return;
    for (Waiting& one : waiting->second) {
      Error error = refuse(one.job, "an earlier job of the same owner hangs").value();
      post([failed = std::move(one.failed), error] { failed(error); });
      ++timed_.refused;
    }
    queued_ -= waiting->second.size();
    waiting_.erase(waiting);
    std::erase(turns_, key);
  }

  /// Without a new thread the rest of the pool goes on, and the next job tries again.
  void replace_thread() {
    if (queued_ == 0 || threads_ >= options_.threads) return;
    try {
      std::thread([self = shared_from_this()] { self->serve(); }).detach();
      ++threads_;
    } catch (const std::system_error&) {
    }
  }

  void post(std::function<void()> deliver) {
    if (stopping_) return;
    executor_([self = weak_from_this(), deliver = std::move(deliver)] {
      const auto state = self.lock();
      if (state && !state->has_stopped()) deliver();
    });
  }

  bool has_stopped() const {
    const std::lock_guard lock(mutex_);
    return stopping_;
  }

  const Executor executor_;
  const DeadlineWorkerOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable work_came_;
  std::condition_variable deadline_came_;
  std::map<Key, std::deque<Waiting>> waiting_;
  std::deque<Key> turns_;       ///< the keys of waiting_, each once
  std::list<Running> running_;  ///< and those given up
  std::size_t queued_ = 0;
  std::size_t threads_ = 0;  ///< not those given up
  std::size_t idle_ = 0;
  std::size_t stuck_ = 0;
  bool stopping_ = false;
  Stats timed_;
  std::thread watch_;
};

DeadlineWorker::DeadlineWorker(Executor executor, DeadlineWorkerOptions options)
    : state_(std::make_shared<State>(std::move(executor), options)) {}

DeadlineWorker::~DeadlineWorker() { state_->stop(); }

Status DeadlineWorker::submit(Job job, Work work, Failed failed) {
  return state_->submit(std::move(job), std::move(work), std::move(failed));
}

bool DeadlineWorker::stuck(Key key) const { return state_->stuck(key); }

DeadlineWorker::Stats DeadlineWorker::stats() const { return state_->stats(); }

}  // namespace ingero
