// SPDX-License-Identifier: Apache-2.0
// What the scheduler's programs cost at a switch of tasks: pairs of processes on one processor hand a byte to
// and fro, and the CPU time of both is divided by the switches. In one run and interleaved: without programs,
// and with them where neither, one or both are traced, and while single waits and sleeps are recorded.
#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "attach/bpf_object.h"
#include "base/clock.h"
#include "collect/call_collector.h"
#include "discover/mapping_scanner.h"

namespace {

using namespace ingero;

constexpr int kTrips = 2000;  ///< of one turn, two switches each
constexpr int kTurns = 5;     ///< of one round: to attach and detach takes long
int rounds = 20;

[[noreturn]] void die(const std::string& why) {
  std::fprintf(stderr, "switch_cost: %s\n", why.c_str());
  std::exit(2);
}

class Pipe {
 public:
  Pipe() {
    if (::pipe2(ends_.data(), O_CLOEXEC) != 0) die("pipe");
  }
  void put() const {
    const char byte = 0;
    if (::write(ends_[1], &byte, 1) != 1) ::_exit(1);
  }
  void get() const {
    char byte = 0;
    if (::read(ends_[0], &byte, 1) != 1) ::_exit(1);
  }

 private:
  std::array<int, 2> ends_{};
};

double cpu_ns(pid_t pid) {
  clockid_t clock{};
  timespec time{};
  if (::clock_getcpuclockid(pid, &clock) != 0 || ::clock_gettime(clock, &time) != 0)
    die("CPU time of a child");
  return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
}

/// Two processes that wake each other.
class Pair {
 public:
  Pair() {
    first_ = start([this] {
      while (true) {
        begin_.get();
        for (int i = 0; i < kTrips; ++i) {
          there_.put();
          back_.get();
        }
        done_.put();
      }
    });
    second_ = start([this] {
      while (true) {
        there_.get();
        back_.put();
      }
    });
  }
  ~Pair() {
    for (const pid_t pid : {first_, second_}) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  std::vector<pid_t> members(int count) const {
    return count == 0   ? std::vector<pid_t>{}
           : count == 1 ? std::vector<pid_t>{first_}
                        : std::vector<pid_t>{first_, second_};
  }

  double cost_ns() const {
    const double before = cpu_ns(first_) + cpu_ns(second_);
    begin_.put();
    done_.get();
    return (cpu_ns(first_) + cpu_ns(second_) - before) / (2 * kTrips);
  }

 private:
  template <typename Work>
  static pid_t start(const Work& work) {
    const pid_t pid = ::fork();
    if (pid < 0) die("fork");
    if (pid > 0) return pid;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    if (::sched_setaffinity(0, sizeof(one), &one) != 0) ::_exit(1);
    work();
    ::_exit(0);
  }

  Pipe begin_, there_, back_, done_;
  pid_t first_ = 0, second_ = 0;
};

/// The programs, for processes that are traced from the beginning.
class Scheduler {
 public:
  Scheduler() {
    attach::BpfOptions options;
    options.method = model::AttachMethod::kPerf;
    auto bpf = attach::BpfObject::create(options);
    if (!bpf) die(bpf.error().message());
    bpf_ = std::move(*bpf);
    collector_ = std::make_unique<collect::CallCollector>(bpf_->handles(), clock_);
  }
  void trace(const std::vector<pid_t>& pids) {
    const discover::MappingScanner scanner(bpf_->handles());
    for (const pid_t pid : pids) {
      const auto mappings = scanner.scan_process(static_cast<std::uint32_t>(pid));
      if (!mappings || mappings->empty()) die("mappings of a child");
      collector_->watch_process(mappings->front().process);
    }
  }
  void record(bool on) {
    const std::uint64_t threshold = on ? 1'000'000'000 : 0;  // nobody waits so long
    static_cast<void>(bpf_->stream_host_events(false, threshold, threshold));
  }
  void watch(bool on) {
    if (auto status = bpf_->watch_scheduler(on); !status) die(status.error().message());
  }

 private:
  Clock clock_;
  std::unique_ptr<attach::BpfObject> bpf_;
  std::unique_ptr<collect::CallCollector> collector_;
};

struct Way {
  std::string name;
  int traced;
  bool recorded;
  std::unique_ptr<Pair> pair = std::make_unique<Pair>();
  std::vector<double> with = {}, without = {};
};

double minimum(const std::vector<double>& values) {
  return *std::min_element(values.begin(), values.end());
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double ratio(const Way& way) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < way.with.size(); ++i) ratios.push_back(way.with[i] / way.without[i]);
  return median(ratios);
}

}  // namespace

/// switch_cost [ROUNDS]
int main(int argc, char** argv) {
  if (argc > 1) rounds = std::max(1, std::atoi(argv[1]));
  std::vector<Way> ways;
  ways.push_back({"neither is traced", 0, false});
  ways.push_back({"one is traced", 1, false});
  ways.push_back({"both are traced", 2, false});
  ways.push_back({"both are traced and recorded", 2, true});
  Scheduler scheduler;
  for (Way& way : ways) {
    scheduler.trace(way.pair->members(way.traced));
    static_cast<void>(way.pair->cost_ns());
  }
  for (int round = 0; round < rounds; ++round) {
    for (Way& way : ways)
      for (int i = 0; i < kTurns; ++i) way.without.push_back(way.pair->cost_ns());
    scheduler.watch(true);
    for (Way& way : ways) {
      scheduler.record(way.recorded);
      static_cast<void>(way.pair->cost_ns());
      for (int i = 0; i < kTurns; ++i) way.with.push_back(way.pair->cost_ns());
    }
    scheduler.record(false);
    scheduler.watch(false);
  }
  std::printf(
      "a switch of tasks, two processes     without programs          with programs   ratio\n");
  for (const Way& way : ways)
    std::printf("  %-32s %6.0f ns %6.0f ns   %6.0f ns %6.0f ns   %5.3f %5.3f\n", way.name.c_str(),
                minimum(way.without), median(way.without), minimum(way.with), median(way.with),
                minimum(way.with) / minimum(way.without), ratio(way));
  std::printf(
      "  (each minimum and median; ratio of the minima, median of the ratios of each turn)\n");
  return 0;
}
