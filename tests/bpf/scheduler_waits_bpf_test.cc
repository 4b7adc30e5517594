// SPDX-License-Identifier: Apache-2.0
// Waits for a processor of other processes, beside those that the kernel counts.
#include <sys/wait.h>

#include <csignal>
#include <filesystem>
#include <numeric>

#include "scheduler_test.h"

namespace ingero::testing {
namespace {

/// Waits for a processor and their nanoseconds, of a process.
struct Waits {
  std::uint64_t count = 0, ns = 0;
};

Waits of_thread(const std::filesystem::path& task) {
  std::ifstream file(task / "schedstat");
  std::uint64_t ran = 0;
  Waits waits;
  file >> ran >> waits.ns >> waits.count;
  return waits;
}

/// A process whose threads take a processor from each other when they are told to, and sleep then.
class Crowd {
 public:
  static constexpr int kThreads = 4;

  /// `wanted`: its number, which must be free; 0: any.
  explicit Crowd(pid_t wanted = 0) {
    EXPECT_EQ(::pipe(begin_) + ::pipe(done_), 0);
    do {
      if (pid_ != 0) end();  // another process was begun between the two
      if (wanted != 0) std::ofstream("/proc/sys/kernel/ns_last_pid") << wanted - 1;
      pid_ = ::fork();
      if (pid_ == 0) live();
    } while (wanted != 0 && pid_ != wanted);
  }
  ~Crowd() {
    end();
    for (const int end : {begin_[0], begin_[1], done_[0], done_[1]}) ::close(end);
  }
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;

  pid_t pid() const { return pid_; }

  void work() const {
    EXPECT_EQ(::write(begin_[1], "w", 1), 1);
    char byte = 0;
    for (int i = 0; i < kThreads; ++i) EXPECT_EQ(::read(done_[0], &byte, 1), 1);
    while (!sleeps()) std::this_thread::sleep_for(1ms);
  }

  /// As the kernel counts them: of all threads but the first, and of the first.
  std::pair<Waits, Waits> waits() const {
    Waits others, first;
    for (const auto& task : threads()) {
      const Waits waits = of_thread(task.path());
      Waits& sum = task.path().filename() == std::to_string(pid_) ? first : others;
      sum.count += waits.count;
      sum.ns += waits.ns;
    }
    return {others, first};
  }

 private:
  void end() const {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  std::filesystem::directory_iterator threads() const {
    return std::filesystem::directory_iterator("/proc/" + std::to_string(pid_) + "/task");
  }
  bool sleeps() const {
    for (const auto& task : threads()) {
      std::ifstream file(task.path() / "stat");
      std::string text;
      std::getline(file, text);
      if (text.find(") S ") == std::string::npos) return false;
    }
    return true;
  }
  [[noreturn]] void live() const {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    ::sched_setaffinity(0, sizeof(one), &one);
    char byte = 0;
    if (::read(begin_[0], &byte, 1) != 1) ::_exit(1);
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i)
      threads.emplace_back([this] {
        for (int j = 0; j < 50; ++j) {
          burn(kMillisecond);
          std::this_thread::sleep_for(100us);
        }
        char never = 0;
        if (::write(done_[1], &never, 1) != 1) ::_exit(1);
        static_cast<void>(!::read(begin_[0], &never, 1));
      });
    threads.front().join();
    ::_exit(1);
  }

  int begin_[2] = {}, done_[2] = {};
  pid_t pid_ = 0;
};

class CountedWaits : public Scheduler {
 protected:
  Waits counted(pid_t pid) {
    model::Snapshot snapshot;
    collector_->read(snapshot);
    Waits waits;
    for (const auto& row : snapshot.waits) {
      if (row.process.tgid != static_cast<std::uint32_t>(pid)) continue;
      waits.count += row.waits;
      waits.ns += row.wait_ns;
      EXPECT_EQ(std::accumulate(row.durations.begin(), row.durations.end(), std::uint64_t{0}),
                row.waits);
    }
    return waits;
  }

  /// All of the threads that were made under the agent's eyes; of the first one, what came after it was seen.
  void expect_those_of_the_kernel(const Crowd& crowd) {
    const auto [others, first] = crowd.waits();
    const Waits seen = counted(crowd.pid());
    EXPECT_GT(others.count, static_cast<std::uint64_t>(Crowd::kThreads));
    EXPECT_GE(seen.count, others.count);
    EXPECT_LE(seen.count, others.count + first.count);
    EXPECT_GE(seen.ns, others.ns);
    EXPECT_LE(seen.ns, others.ns + first.ns);
  }
};

TEST_F(CountedWaits, AreThoseThatTheKernelCounts) {
  const Crowd crowd;
  load(0, 1 << 20, false, 0);
  trace(crowd.pid());
  watch();
  crowd.work();
  expect_those_of_the_kernel(crowd);
}

TEST_F(CountedWaits, AreTheSameWhileSingleOnesAreStreamed) {
  const Crowd crowd;
  load(kThreshold);
  trace(crowd.pid());
  watch();
  crowd.work();
  expect_those_of_the_kernel(crowd);
}

/// What was found not to be traced is remembered: until more processes are.
TEST_F(CountedWaits, OfAProcessThatIsTracedLaterAreCountedFromThenOn) {
  const Crowd early, late;
  load(0, 1 << 20, false, 0);
  watch();
  early.work();
  EXPECT_EQ(counted(early.pid()).count, 0u);
  std::this_thread::sleep_for(20ms);
  trace(late.pid());
  late.work();
  expect_those_of_the_kernel(late);
  EXPECT_EQ(counted(early.pid()).count, 0u);
}

/// What was found to be traced is remembered, too: until one of them ends.
TEST_F(CountedWaits, OfAProcessThatHasTheNumberOfATracedOneThatEndedAreNotCounted) {
  auto traced = std::make_unique<Crowd>();
  const pid_t pid = traced->pid();
  load(0, 1 << 20, false, 0);
  trace(pid);
  watch();
  traced->work();
  traced.reset();
  const Waits before = counted(pid);
  EXPECT_GT(before.count, 0u);
  const Crowd stranger(pid);
  stranger.work();
  EXPECT_GT(stranger.waits().first.count, 0u);
  EXPECT_EQ(counted(pid).count, before.count);
}

}  // namespace
}  // namespace ingero::testing
