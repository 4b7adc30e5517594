// SPDX-License-Identifier: Apache-2.0
#pragma once

// Programs at switches of tasks, and threads whose sleeps and waits are known.
#include <bpf/bpf.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "attach/bpf_object.h"
#include "base/clock.h"
#include "collect/call_collector.h"
#include "collect/event_reader.h"
#include "discover/mapping_scanner.h"

namespace ingero::testing {

using namespace std::chrono_literals;

constexpr std::uint64_t kMillisecond = 1'000'000;
constexpr std::uint64_t kThreshold = 10 * kMillisecond;

inline std::uint64_t now() { return system_clock_source().monotonic_ns(); }
inline std::uint32_t thread_id() { return static_cast<std::uint32_t>(::syscall(SYS_gettid)); }

/// When a thread went to sleep and woke up, by its own clock: the span lies between the two.
struct Slept {
  std::uint64_t begin = 0, end = 0;
};

inline Slept sleep(std::chrono::nanoseconds time) {
  Slept slept{now(), 0};
  std::this_thread::sleep_for(time);
  slept.end = now();
  return slept;
}

inline std::uint64_t cpu_time() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(time.tv_nsec);
}

inline void burn(std::uint64_t nanoseconds) {
  const std::uint64_t end = cpu_time() + nanoseconds;
  while (cpu_time() < end) {
  }
}

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

}  // namespace ingero::testing
