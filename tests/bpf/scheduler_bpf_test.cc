// SPDX-License-Identifier: Apache-2.0
// Off-CPU spans and waits for a processor, of threads of this very process that sleep for known times.
#include "scheduler_test.h"

#include <sys/wait.h>

#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <mutex>

namespace ingero::testing {
namespace {

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

}  // namespace
}  // namespace ingero::testing
