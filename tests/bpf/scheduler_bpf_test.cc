// SPDX-License-Identifier: Apache-2.0
// Off-CPU spans and waits for a processor, of threads of this very process that sleep for known times.
#include <bpf/bpf.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <numeric>
#include <thread>

#include "attach/bpf_object.h"
#include "base/clock.h"
#include "collect/call_collector.h"
#include "collect/event_reader.h"
#include "discover/mapping_scanner.h"

namespace ingero {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kMillisecond = 1'000'000;
constexpr std::uint64_t kThreshold = 10 * kMillisecond;

std::uint64_t now() { return system_clock_source().monotonic_ns(); }
std::uint32_t thread_id() { return static_cast<std::uint32_t>(::syscall(SYS_gettid)); }

/// When a thread went to sleep and woke up, by its own clock: the span lies between the two.
struct Slept {
  std::uint64_t begin = 0, end = 0;
};

Slept sleep(std::chrono::nanoseconds time) {
  Slept slept{now(), 0};
  std::this_thread::sleep_for(time);
  slept.end = now();
  return slept;
}

/// The id of a thread that has slept, woken up and ended.
std::uint32_t sleep_in_a_thread(std::chrono::nanoseconds time) {
  std::uint32_t tid = 0;
  std::thread([&] {
    tid = thread_id();
    static_cast<void>(sleep(time));
  }).join();
  return tid;
}

/// How often the calling thread has left its processor by blocking.
std::uint64_t times_blocked() {
  rusage usage{};
  ::getrusage(RUSAGE_THREAD, &usage);
  return static_cast<std::uint64_t>(usage.ru_nvcsw);
}

std::uint64_t cpu_time() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(time.tv_nsec);
}

void burn(std::uint64_t nanoseconds) {
  const std::uint64_t end = cpu_time() + nanoseconds;
  while (cpu_time() < end) {
  }
}

/// Until a thread of this process sleeps.
void wait_asleep(const std::atomic<std::uint32_t>& tid) {
  while (true) {
    if (tid != 0) {
      std::ifstream file("/proc/self/task/" + std::to_string(tid) + "/stat");
      std::string text;
      std::getline(file, text);
      if (text.find(") S ") != std::string::npos) return;
    }
    std::this_thread::sleep_for(1ms);
  }
}

/// A thread waits here, asleep, until it is opened.
class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

class Scheduler : public ::testing::Test {
 protected:
  void load(std::uint64_t off_cpu_ns, std::uint32_t ring_bytes = 1 << 20, bool only_listed = false,
            std::uint64_t waits_ns = 1) {
    attach::BpfOptions options;
    options.method = model::AttachMethod::kPerf;
    options.settings.stream_off_cpu_ns = off_cpu_ns;
    options.settings.stream_waits_ns = waits_ns;
    options.settings.only_listed_processes = only_listed ? 1 : 0;
    auto bpf = attach::BpfObject::create(options);
    ASSERT_TRUE(bpf) << bpf.error().message();
    bpf_ = std::move(*bpf);
    const auto ring = bpf_->open_stream(ring_bytes);
    ASSERT_TRUE(ring) << ring.error().message();
    ring_ = *ring;
    collector_ = std::make_unique<collect::CallCollector>(bpf_->handles(), clock_);
  }

  void trace_this_process() { trace(::getpid()); }

  void trace(pid_t pid) {
    const discover::MappingScanner scanner(bpf_->handles());
    const auto mappings = scanner.scan_process(static_cast<std::uint32_t>(pid));
    ASSERT_TRUE(mappings) << mappings.error().message();
    ASSERT_FALSE(mappings->empty());
    self_ = mappings->front().process;
    collector_->watch_process(self_);
  }

  void watch(bool on = true) {
    const auto status = bpf_->watch_scheduler(on);
    ASSERT_TRUE(status) << status.error().message();
  }

  void begin(std::uint64_t off_cpu_ns, std::uint32_t ring_bytes = 1 << 20,
             bool only_listed = false) {
    load(off_cpu_ns, ring_bytes, only_listed);
    trace_this_process();
    watch();
  }

  std::vector<wait_event> take() {
    std::vector<wait_event> events;
    auto reader =
        collect::EventReader::create(ring_, [&](const event_header& header, std::size_t size) {
          const auto* event = collect::event_as<wait_event>(header, size);
          if (event != nullptr) events.push_back(*event);
          return true;
        });
    EXPECT_TRUE(reader);
    (*reader)->consume();
    return events;
  }

  static std::vector<wait_event> of(std::vector<wait_event> events, std::uint32_t kind,
                                    std::uint32_t tid) {
    std::erase_if(events, [&](const wait_event& event) {
      return event.header.kind != kind || event.header.tid != tid;
    });
    return events;
  }
  std::vector<wait_event> spans_of(std::uint32_t tid) { return of(take(), EVENT_OFF_CPU, tid); }

  static bool is_within(const wait_event& span, const Slept& slept) {
    return span.header.time_ns >= slept.begin && span.header.time_ns + span.wait_ns <= slept.end;
  }

  Clock clock_;
  std::unique_ptr<attach::BpfObject> bpf_;
  int ring_ = -1;  ///< of streamed events
  std::unique_ptr<collect::CallCollector> collector_;
  model::ProcessKey self_;
};

TEST_F(Scheduler, SleepsOfAThreadAreSpansFromTheThresholdOn) {
  begin(kThreshold);
  std::uint32_t tid = 0;
  std::vector<Slept> slept;
  std::thread([&] {
    tid = thread_id();
    for (const auto time : {20ms, 2ms, 30ms, 5ms}) slept.push_back(sleep(time));
  }).join();
  const auto spans = spans_of(tid);
  for (const std::size_t i : {0u, 2u})
    EXPECT_EQ(std::count_if(spans.begin(), spans.end(),
                            [&](const wait_event& span) { return is_within(span, slept[i]); }),
              1)
        << "sleep " << i;
  for (const wait_event& span : spans) {
    EXPECT_GE(span.wait_ns, kThreshold);
    EXPECT_TRUE(std::any_of(slept.begin(), slept.end(),
                            [&](const Slept& one) { return is_within(span, one); }));
    EXPECT_EQ(span.header.tgid, static_cast<std::uint32_t>(::getpid()));
    EXPECT_EQ(span.header.process_start_ns, self_.start_ns);
    EXPECT_NE(span.header.cgroup_id, 0u);
    EXPECT_EQ(span.sleep_state, static_cast<std::uint32_t>(SLEEP_INTERRUPTIBLE));
  }
}

TEST_F(Scheduler, ASpanContainsTheWaitAtItsEnd) {
  begin(1);
  const std::uint32_t tid = sleep_in_a_thread(20ms);
  const auto events = take();
  const auto spans = of(events, EVENT_OFF_CPU, tid), waits = of(events, EVENT_RUN_QUEUE_WAIT, tid);
  const auto span = std::find_if(spans.begin(), spans.end(), [](const wait_event& event) {
    return event.wait_ns >= 19 * kMillisecond;
  });
  ASSERT_NE(span, spans.end());
  const std::uint64_t end = span->header.time_ns + span->wait_ns;
  const auto wait = std::find_if(waits.begin(), waits.end(), [&](const wait_event& event) {
    return event.header.time_ns + event.wait_ns == end;
  });
  ASSERT_NE(wait, waits.end()) << "the wait ends at the very moment of the span";
  EXPECT_GT(wait->header.time_ns, span->header.time_ns);
  EXPECT_EQ(wait->sleep_state, static_cast<std::uint32_t>(SLEEP_UNKNOWN));
}

/// Two threads on one processor that never sleep take it from each other.
TEST_F(Scheduler, APreemptedThreadIsNotOffTheProcessorByBlocking) {
  begin(1);
  const auto work = [](std::uint32_t& tid, Slept& busy) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    ASSERT_EQ(::sched_setaffinity(0, sizeof(one), &one), 0);
    tid = thread_id();
    busy.begin = now();
    burn(150 * kMillisecond);
    busy.end = now();
  };
  std::uint32_t tids[2] = {};
  Slept busy[2];
  std::thread first(work, std::ref(tids[0]), std::ref(busy[0]));
  std::thread second(work, std::ref(tids[1]), std::ref(busy[1]));
  first.join();
  second.join();
  const auto events = take();
  for (int i = 0; i < 2; ++i) {
    const auto inside = [&](std::uint32_t kind) {
      auto found = of(events, kind, tids[i]);
      std::erase_if(found, [&](const wait_event& event) {
        return event.header.time_ns < busy[i].begin || event.header.time_ns > busy[i].end;
      });
      return found;
    };
    EXPECT_EQ(inside(EVENT_OFF_CPU).size(), 0u);
    EXPECT_GT(inside(EVENT_RUN_QUEUE_WAIT).size(), 0u) << "nobody was preempted: nothing is shown";
  }
}

TEST_F(Scheduler, ASleepInTheKernelIsUninterruptible) {
  begin(kThreshold);
  // The parent of vfork() waits, and no signal but a fatal one wakes it.
  std::uint32_t tid = 0;
  Slept slept;
  std::thread([&] {
    tid = thread_id();
    slept.begin = now();
    const pid_t child = ::vfork();  // NOLINT: what it lends is the point
    if (child == 0) {
      const timespec time{0, 30'000'000};
      ::syscall(SYS_nanosleep, &time, nullptr);
      ::_exit(0);
    }
    slept.end = now();
    ::waitpid(child, nullptr, 0);
  }).join();
  const auto spans = spans_of(tid);
  ASSERT_EQ(spans.size(), 1u);
  EXPECT_TRUE(is_within(spans[0], slept));
  EXPECT_EQ(spans[0].sleep_state, static_cast<std::uint32_t>(SLEEP_UNINTERRUPTIBLE));
}

TEST_F(Scheduler, ASpanWhoseBeginningWasNotSeenIsNotReported) {
  const std::function<void()> trace = [this] { trace_this_process(); }, look = [this] { watch(); };
  for (const bool traced_first : {true, false}) {
    load(kThreshold);
    (traced_first ? trace : look)();
    std::atomic<std::uint32_t> tid = 0;
    Gate gate;
    Slept later;
    std::thread thread([&] {
      tid = thread_id();
      gate.pass();  // asleep before the programs are there, or before the process is traced
      later = sleep(20ms);
    });
    wait_asleep(tid);
    const std::uint64_t seen_from = now();
    (traced_first ? look : trace)();
    std::this_thread::sleep_for(20ms);
    gate.open();
    thread.join();
    const auto spans = spans_of(tid);
    EXPECT_EQ(std::count_if(spans.begin(), spans.end(),
                            [&](const wait_event& span) { return is_within(span, later); }),
              1)
        << "traced first: " << traced_first;
    for (const wait_event& span : spans) EXPECT_GE(span.header.time_ns, seen_from);
  }
}

TEST_F(Scheduler, WhatAThreadDidWhileNobodyLookedIsNoPartOfASpan) {
  begin(kThreshold);
  std::atomic<std::uint32_t> tid = 0, awake = 0;
  Gate first, second;
  std::thread thread([&] {
    tid = thread_id();
    first.pass();  // falls asleep while the programs look
    awake = thread_id();
    second.pass();  // and again while they do not
  });
  wait_asleep(tid);
  watch(false);
  first.open();
  wait_asleep(awake);
  std::this_thread::sleep_for(20ms);
  watch();
  second.open();
  thread.join();
  EXPECT_EQ(spans_of(tid).size(), 0u);
}

TEST_F(Scheduler, ProcessesThatAreNotTracedAndThoseThatWereNotAskedForHaveNone) {
  begin(kThreshold, 1 << 20, true);
  std::uint32_t tid = 0;
  const auto rest = [&] {
    tid = sleep_in_a_thread(20ms);
    EXPECT_EQ(std::system("sleep 0.02"), 0);  // a process that is not traced
  };
  rest();
  EXPECT_EQ(take().size(), 0u) << "another process was asked for";
  const std::uint32_t pid = self_.tgid;
  const std::uint8_t yes = 1;
  ASSERT_EQ(bpf_map_update_elem(bpf_->handles().traced_tgids, &pid, &yes, BPF_ANY), 0);
  rest();
  auto events = take();
  EXPECT_EQ(of(events, EVENT_OFF_CPU, tid).size(), 1u);
  std::erase_if(events, [&](const wait_event& event) { return event.header.tgid == pid; });
  EXPECT_EQ(events.size(), 0u);
}

TEST_F(Scheduler, SpansThatFindTheRingFullAreCounted) {
  constexpr std::uint64_t kSpans = 200;  // several times what the ring holds
  begin(1, 4096);
  std::thread([] {
    // By the kernel's own count: a sleep whose end has come before it begins does not block.
    const std::uint64_t before = times_blocked();
    while (times_blocked() - before < kSpans) static_cast<void>(sleep(100us));
  }).join();
  watch(false);
  const std::size_t held = take().size();
  model::Snapshot snapshot;
  collector_->read(snapshot);
  EXPECT_GT(snapshot.events_lost.at("host_event_stream_full"), 0u);
  EXPECT_EQ(snapshot.events_lost.at("call_stream_full"), 0u) << "none of them is a call";
  EXPECT_GE(held + snapshot.events_lost.at("host_event_stream_full"), kSpans);
}

TEST_F(Scheduler, WithoutAThresholdThereAreNoSpans) {
  begin(0);
  const std::uint32_t tid = sleep_in_a_thread(20ms);
  const auto events = take();
  EXPECT_EQ(of(events, EVENT_OFF_CPU, tid).size(), 0u);
  EXPECT_GT(of(events, EVENT_RUN_QUEUE_WAIT, tid).size(), 0u);
}

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

  Crowd() {
    EXPECT_EQ(::pipe(begin_) + ::pipe(done_), 0);
    pid_ = ::fork();
    if (pid_ == 0) live();
  }
  ~Crowd() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
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

}  // namespace
}  // namespace ingero
