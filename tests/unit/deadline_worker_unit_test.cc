// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/deadline_worker.h"

namespace ingero {
namespace {

using namespace std::chrono_literals;

/// The thread that results belong to: this test's.
class Loop {
 public:
  DeadlineWorker::Executor executor() {
    return [this](std::function<void()> task) {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
      came_.notify_one();
    };
  }

  /// Runs tasks until the condition holds.
  template <typename Condition>
  void run_until(Condition condition) {
    while (!condition()) run_one();
  }

  std::size_t waiting() const {
    const std::lock_guard lock(mutex_);
    return tasks_.size();
  }

  void run_one() {
    std::unique_lock lock(mutex_);
    came_.wait(lock, [this] { return !tasks_.empty(); });
    auto task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable came_;
  std::deque<std::function<void()>> tasks_;
};

/// What a job hangs on until it is opened. Shared: jobs outlive tests.
class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    ++arrived_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
    ++passed_;
    changed_.notify_all();
  }
  void wait_arrived(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return arrived_ >= count; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  int arrived_ = 0;
  int passed_ = 0;
};

constexpr auto kNever = std::chrono::milliseconds(10min);

DeadlineWorker::Job job(DeadlineWorker::Key key, std::chrono::milliseconds deadline = kNever) {
  return {key, "read memory", "pid " + std::to_string(key), deadline};
}

std::function<Result<int>()> hang(const std::shared_ptr<Gate>& gate) {
  return [gate]() -> Result<int> {
    gate->pass();
    return 1;
  };
}

std::function<Result<int>()> give(int value) {
  return [value]() -> Result<int> { return value; };
}

/// Results in the order in which they came.
struct Results {
  std::vector<Result<int>> all;
  std::function<void(Result<int>)> add() {
    return [this](Result<int> result) { all.push_back(std::move(result)); };
  }
};

TEST(DeadlineWorker, AJobRunsElsewhereAndItsResultComesToTheCaller) {
  Loop loop;
  DeadlineWorker worker(loop.executor());
  std::thread::id worked;
  std::optional<Result<std::unique_ptr<int>>> result;
  const std::function<Result<std::unique_ptr<int>>()> work = [&worked] {
    worked = std::this_thread::get_id();
    return Result<std::unique_ptr<int>>(std::make_unique<int>(7));
  };
  ASSERT_TRUE(
      worker.run<std::unique_ptr<int>>(job(1), work, [&](auto came) { result = std::move(came); }));
  loop.run_until([&] { return result.has_value(); });
  ASSERT_TRUE(*result);
  EXPECT_EQ(***result, 7);
  EXPECT_NE(worked, std::this_thread::get_id());
}

TEST(DeadlineWorker, ErrorsAndExceptionsOfAJobAreItsResult) {
  Loop loop;
  DeadlineWorker worker(loop.executor());
  Results results;
  const std::function<Result<int>()> failing = []() -> Result<int> {
    return fail(Error{"open", "/x", "no such file", "", ENOENT});
  };
  const std::function<Result<int>()> throwing = []() -> Result<int> {
    throw std::runtime_error("boom");
  };
  ASSERT_TRUE(worker.run<int>(job(1), failing, results.add()));
  ASSERT_TRUE(worker.run<int>(job(1), throwing, results.add()));
  loop.run_until([&] { return results.all.size() == 2; });
  EXPECT_EQ(results.all[0].error().code, ENOENT);
  EXPECT_EQ(results.all[1].error().message(), "read memory (pid 1): boom");
}

TEST(DeadlineWorker, AJobThatHangsIsReportedAndItsKeyRefusedUntilItComesBack) {
  Loop loop;
  DeadlineWorker worker(loop.executor());
  Results results;
  const auto gate = std::make_shared<Gate>();
  ASSERT_TRUE(worker.run<int>(job(1, 1ms), hang(gate), results.add()));
  loop.run_until([&] { return results.all.size() == 1; });
  EXPECT_EQ(results.all[0].error().message(), "read memory (pid 1): no end within 1 ms");
  EXPECT_EQ(results.all[0].error().code, ETIMEDOUT);
  EXPECT_TRUE(worker.stuck(1));
  const auto refused = worker.run<int>(job(1), give(2), results.add());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, EBUSY);
  EXPECT_EQ(worker.stats().stuck, 1U);
  EXPECT_EQ(worker.stats().timed_out, 1U);
  EXPECT_EQ(worker.stats().refused, 1U);

  gate->open();
  while (worker.stuck(1)) std::this_thread::yield();
  ASSERT_TRUE(worker.run<int>(job(1), give(3), results.add()));
  loop.run_until([&] { return results.all.size() == 2; });
  EXPECT_EQ(results.all[1].value_or(-1), 3) << "the late result of the stuck job is nobody's";
  EXPECT_EQ(worker.stats().stuck, 0U);
}

TEST(DeadlineWorker, OthersGoOnWhileMoreJobsHangThanThereAreThreads) {
  Loop loop;
  DeadlineWorker worker(loop.executor(), {.threads = 2});
  Results hung;
  Results results;
  const auto gate = std::make_shared<Gate>();
  for (DeadlineWorker::Key key = 1; key <= 8; ++key)
    ASSERT_TRUE(worker.run<int>(job(key, 1ms), hang(gate), hung.add()));
  ASSERT_TRUE(worker.run<int>(job(100), give(5), results.add()));
  loop.run_until([&] { return hung.all.size() == 8 && results.all.size() == 1; });
  EXPECT_EQ(results.all[0].value_or(-1), 5);
  EXPECT_EQ(worker.stats().stuck, 8U);
  gate->open();
}

TEST(DeadlineWorker, BeyondTheThreadsThatMayBeGivenUpEveryJobIsRefused) {
  Loop loop;
  DeadlineWorker worker(loop.executor(), {.threads = 1, .max_stuck = 2});
  Results results;
  const auto gate = std::make_shared<Gate>();
  for (DeadlineWorker::Key key = 1; key <= 2; ++key)
    ASSERT_TRUE(worker.run<int>(job(key, 1ms), hang(gate), results.add()));
  loop.run_until([&] { return results.all.size() == 2; });
  const auto refused = worker.run<int>(job(3), give(1), results.add());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().cause, "2 jobs of others hang");
  gate->open();
  while (worker.stats().stuck > 0) std::this_thread::yield();
  EXPECT_TRUE(worker.run<int>(job(3), give(1), results.add()));
}

TEST(DeadlineWorker, AKeyHasOneJobRunningAndABoundedNumberWaiting) {
  Loop loop;
  DeadlineWorker worker(loop.executor(), {.threads = 4, .max_queued_key = 3});
  Results results;
  const auto gate = std::make_shared<Gate>();
  ASSERT_TRUE(worker.run<int>(job(1), hang(gate), results.add()));
  gate->wait_arrived(1);
  for (int value = 2; value <= 4; ++value)
    ASSERT_TRUE(worker.run<int>(job(1), give(value), results.add()));
  EXPECT_FALSE(worker.run<int>(job(1), give(5), results.add()));
  Results others;
  ASSERT_TRUE(worker.run<int>(job(2), give(9), others.add()));
  loop.run_until([&] { return others.all.size() == 1; });
  EXPECT_TRUE(results.all.empty());
  EXPECT_EQ(worker.stats().running, 1U);
  EXPECT_EQ(worker.stats().queued, 3U);
  gate->open();
  loop.run_until([&] { return results.all.size() == 4; });
  for (int value = 1; value <= 4; ++value) EXPECT_EQ(results.all[value - 1].value_or(-1), value);
}

TEST(DeadlineWorker, KeysTakeTurns) {
  Loop loop;
  DeadlineWorker worker(loop.executor(), {.threads = 1});
  Results results;
  const auto gate = std::make_shared<Gate>();
  ASSERT_TRUE(worker.run<int>(job(1), hang(gate), results.add()));
  gate->wait_arrived(1);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(worker.run<int>(job(2), give(2), results.add()));
  ASSERT_TRUE(worker.run<int>(job(3), give(3), results.add()));
  gate->open();
  loop.run_until([&] { return results.all.size() == 6; });
  EXPECT_EQ(results.all[2].value_or(-1), 3) << "before the three other jobs of its neighbour";
}

TEST(DeadlineWorker, JobsThatWaitBehindAStuckOneAreRefused) {
  Loop loop;
  DeadlineWorker worker(loop.executor(), {.threads = 1});
  Results results;
  const auto gate = std::make_shared<Gate>();
  ASSERT_TRUE(worker.run<int>(job(1, 20ms), hang(gate), results.add()));
  const bool waited = worker.run<int>(job(1), give(2), results.add()).has_value();
  loop.run_until([&] { return results.all.size() == (waited ? 2U : 1U); });
  EXPECT_EQ(results.all[0].error().code, ETIMEDOUT);
  if (waited) {
    EXPECT_EQ(results.all[1].error().code, EBUSY);
  }
  gate->open();
}

TEST(DeadlineWorker, ItsEndWaitsForNothingAndDeliversNothing) {
  Loop loop;
  const auto gate = std::make_shared<Gate>();
  Results results;
  {
    DeadlineWorker worker(loop.executor(), {.threads = 1});
    ASSERT_TRUE(worker.run<int>(job(1), hang(gate), results.add()));
    ASSERT_TRUE(worker.run<int>(job(2), give(2), results.add()));
    gate->wait_arrived(1);
  }
  gate->open();
  {
    DeadlineWorker worker(loop.executor());
    ASSERT_TRUE(worker.run<int>(job(1), give(1), results.add()));
    while (loop.waiting() == 0) std::this_thread::yield();
  }
  loop.run_one();
  EXPECT_TRUE(results.all.empty()) << "a result that was on its way when its worker went";
}

TEST(DeadlineWorker, ManyJobsOfManyKeysAllEnd) {
  Loop loop;
  DeadlineWorker worker(loop.executor(),
                        {.threads = 4, .max_queued = 100000, .max_queued_key = 100000});
  int ended = 0;
  for (int i = 0; i < 5000; ++i)
    ASSERT_TRUE(worker.run<int>(job(i % 17), give(i), [&](Result<int> result) {
      EXPECT_TRUE(result);
      ++ended;
    }));
  loop.run_until([&] { return ended == 5000; });
  EXPECT_EQ(worker.stats().queued, 0U);
}

}  // namespace
}  // namespace ingero
