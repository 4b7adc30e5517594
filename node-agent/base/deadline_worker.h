// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/result.h"

namespace ingero {

struct DeadlineWorkerOptions {
  std::size_t threads = 2;         ///< jobs that run at once; stuck ones are not among them
  std::size_t max_stuck = 32;      ///< threads given up for a time or for good, of all keys
  std::size_t max_queued = 1024;   ///< jobs that wait, of all keys
  std::size_t max_queued_key = 8;  ///< jobs that wait, of one key
};

/// Jobs that may hang: reads of a tenant's files and memory, which a tenant's own file system can
/// hold up for ever. They run on threads of the worker's, never on the caller's. Each key (such as
/// a container) has one job running at a time, and the keys take turns. A job that has not ended
/// by its deadline is reported as such; its thread is given up and replaced, and its key is refused
/// until the thread comes back. Nobody ever waits for a stuck thread, the end of the process least
/// of all; so a job must own all that it touches. One that hangs uninterruptibly in the kernel ends
/// with what it waits for.
class DeadlineWorker {
 public:
  using Key = std::uint64_t;
  /// Gives a function to the thread that results belong to, such as boost::asio::post() to an
  /// io_context. Only queues: it is called with the worker's lock held.
  using Executor = std::function<void(std::function<void()>)>;

  struct Job {
    Key key = 0;
    std::string operation;                     ///< for errors, such as "inspect library"
    std::string object;                        ///< such as the file's path
    std::chrono::milliseconds deadline{2000};  ///< from its start, not from when it was queued
  };

  struct Stats {
    std::size_t queued = 0;
    std::size_t running = 0;
    std::size_t stuck = 0;  ///< threads that have not come back
    std::uint64_t timed_out = 0;
    std::uint64_t refused = 0;
  };

  DeadlineWorker(Executor executor, DeadlineWorkerOptions options = {});
  /// Waits for nothing. No result is delivered afterwards, if the executor's thread is this one.
  ~DeadlineWorker();
  DeadlineWorker(const DeadlineWorker&) = delete;
  DeadlineWorker& operator=(const DeadlineWorker&) = delete;

  /// Runs `work` on a thread of its own and gives `done` what it returned, or why it did not:
  /// ETIMEDOUT past the deadline. An error here, EBUSY: the key has a stuck or too many waiting
  /// jobs, or all threads that may be given up are; `done` is never called then.
  template <typename T>
  Status run(Job job, std::function<Result<T>()> work, std::function<void(Result<T>)> done) {
    auto shared = std::make_shared<std::function<void(Result<T>)>>(std::move(done));
    return submit(
        std::move(job),
        [work = std::move(work), shared]() -> std::function<void()> {
          auto result = std::make_shared<Result<T>>(work());
          return [result, shared] { (*shared)(std::move(*result)); };
        },
        [shared](Error error) { (*shared)(fail(std::move(error))); });
  }

  /// A job of this key is past its deadline and its thread has not come back.
  bool stuck(Key key) const;
  Stats stats() const;

 private:
  /// Returns what delivers the result. Runs on a thread of the worker's.
  using Work = std::function<std::function<void()>()>;
  using Failed = std::function<void(Error)>;
  class State;

  Status submit(Job job, Work work, Failed failed);

  std::shared_ptr<State> state_;  ///< also held by every thread
};

}  // namespace ingero
