// SPDX-License-Identifier: Apache-2.0
#include "app/host_scanner.h"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <map>

#include "base/clock.h"

namespace ingero::app {
namespace {

using namespace std::chrono_literals;
using discover::RunningProcess;

constexpr auto kContainerTime = 250ms;  // of a processor, in one scan of the host
constexpr auto kProcessTime = 100ms;
constexpr auto kHostTime = 2s;  // where the kernel walks over everybody at once
constexpr std::size_t kProcessRecords = 8192;
constexpr std::size_t kContainerRecords = 32768;
constexpr auto kDeadline = 5s;  // by the wall clock
constexpr std::uint64_t kEverybody = 0;
constexpr std::uint64_t kScansPerWalk =
    30;  // over a process of which nothing says that it has changed
/// For scans of single processes: a tenth of one processor, saved up for a start with many of them.
constexpr double kShareOfSecond = 1e8, kSavedShare = 5e8;

std::uint64_t boot_ns() {
  timespec time{};
  ::clock_gettime(CLOCK_BOOTTIME, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(time.tv_nsec);
}

DeadlineWorkerOptions worker_options() {
  DeadlineWorkerOptions options;
  options.max_queued = 65536;
  return options;
}

}  // namespace

HostScanner::HostScanner(const discover::MappingScanner& scanner, DeadlineWorker::Executor executor)
    : scanner_(scanner),
      worker_(std::move(executor), worker_options()),
      share_(kShareOfSecond, kSavedShare) {}

// ---- the host --------------------------------------------------------------------------------------

void HostScanner::scan_host(std::set<model::ProcessKey> always, HostDone done) {
  ++scans_;
  scan_ = std::make_shared<Scan>();
  scan_->done = std::move(done);
  scan_->always = std::move(always);
  scan_->all = std::exchange(walks_all_, false);
  scan_->result.began_ns = system_clock_source().monotonic_ns();
  scan_->result.listed_boot_ns = boot_ns();
  const auto accepted = worker_.run<Processes>(
      {kEverybody, "list processes", "", kDeadline},
      [scanner = scanner_] { return scanner.processes(); },
      [this](Result<Processes> processes) { listed(std::move(processes)); });
  if (!accepted) finish(fail(accepted.error()));
}

void HostScanner::listed(Result<Processes> processes) {
  if (!processes) return finish(fail(processes.error()));
  std::map<std::uint64_t, Processes> groups;
  for (const RunningProcess& process : *processes) {
    scan_->result.running.insert(process.process);
    if (may_skip(process)) scan_->result.unchanged.insert(process.process);
    else
      groups[scanner_.walks_single_processes() ? to_number(process.cgroup) : kEverybody].push_back(
          process);
  }
  std::erase_if(settled_,
                [this](const auto& entry) { return !scan_->result.running.contains(entry.first); });
  scan_->under_way = 1;  // this function
  for (auto& [key, group] : groups) {
    // Who was left out goes first this time, then whoever costs least.
    std::sort(group.begin(), group.end(), [&](const RunningProcess& a, const RunningProcess& b) {
      const bool late_a = left_out_before_.contains(a.process);
      const bool late_b = left_out_before_.contains(b.process);
      return late_a != late_b ? late_a : a.mappings < b.mappings;
    });
    walk_group(key, std::move(group));
  }
  finish_one();
}

bool HostScanner::may_skip(const Process& process) const {
  const auto settled = settled_.find(process.process);
  return trusts_events_ && !scan_->all && settled != settled_.end() &&
         settled->second == process.mappings &&
         (scans_ + process.process.tgid) % kScansPerWalk != 0 &&
         !scan_->always.contains(process.process);
}

void HostScanner::settle(const Processes& processes, const ContainerWalk& walk) {
  for (const Process& process : processes) settled_[process.process] = process.mappings;
  for (const model::ProcessKey& process : walk.left_out) settled_.erase(process);
}

void HostScanner::walk_group(std::uint64_t key, Processes processes) {
  const auto shared = std::make_shared<const Processes>(std::move(processes));
  ++scan_->under_way;
  const auto accepted = worker_.run<ContainerWalk>(
      {key, "walk over mappings", std::to_string(key), kDeadline},
      [scanner = scanner_, shared]() -> Result<ContainerWalk> {
        return scanner.walks_single_processes() ? walk_container(scanner, *shared)
                                                : walk_everybody(scanner, *shared);
      },
      [this, shared](Result<ContainerWalk> walked) {
        if (walked) {
          settle(*shared, *walked);
          std::move(walked->mappings.begin(), walked->mappings.end(),
                    std::back_inserter(scan_->result.mappings));
          scan_->result.left_out.insert(walked->left_out.begin(), walked->left_out.end());
        } else {
          leave_out(*shared);
        }
        finish_one();
      });
  if (accepted) return;
  leave_out(*shared);
  finish_one();
}

HostScanner::ContainerWalk HostScanner::walk_container(const discover::MappingScanner& scanner,
                                                       const Processes& processes) {
  ContainerWalk result;
  const auto began = discover::thread_cpu_time();
  for (const RunningProcess& process : processes) {
    result.cost = discover::thread_cpu_time() - began;
    if (result.cost >= kContainerTime || result.mappings.size() >= kContainerRecords) {
      result.left_out.push_back(process.process);
      continue;
    }
    auto walked = scanner.walk(process, {kProcessTime, kProcessRecords});
    if (!walked || !walked->whole) result.left_out.push_back(process.process);
    if (!walked) continue;
    std::move(walked->mappings.begin(), walked->mappings.end(),
              std::back_inserter(result.mappings));
  }
  return result;
}

HostScanner::ContainerWalk HostScanner::walk_everybody(const discover::MappingScanner& scanner,
                                                       const Processes& processes) {
  ContainerWalk result;
  auto walked = scanner.walk_host({kHostTime, kContainerRecords});
  if (walked) result.mappings = std::move(walked->mappings);
  if (walked && walked->whole) return result;
  std::set<model::ProcessKey> seen;
  for (const discover::FileMapping& mapping : result.mappings) seen.insert(mapping.process);
  for (const RunningProcess& process : processes)
    if (!seen.contains(process.process)) result.left_out.push_back(process.process);
  return result;
}

void HostScanner::leave_out(const Processes& processes) {
  for (const RunningProcess& process : processes) scan_->result.left_out.insert(process.process);
}

void HostScanner::finish_one() {
  if (--scan_->under_way != 0) return;
  postponed_ += scan_->result.left_out.size();
  left_out_before_ = scan_->result.left_out;
  finish(std::move(scan_->result));
}

void HostScanner::finish(Result<HostScan> result) {
  const HostDone done = std::move(scan_->done);
  scan_.reset();  // `done` may begin another one
  done(std::move(result));
}

// ---- one process -----------------------------------------------------------------------------------

Status HostScanner::scan_process(std::uint32_t pid, ProcessDone done) {
  const auto process = scanner_.find_process(pid);
  if (!process) return fail(process.error());
  if (!*process) {
    done(std::vector<discover::FileMapping>{});
    return {};
  }
  const std::uint64_t key =
      scanner_.walks_single_processes() ? to_number((*process)->cgroup) : kEverybody;
  const std::string object = fmt::format("process {}", pid);
  Status accepted = fail(Error{"scan", object, "its container has used up its share of scans",
                               "the next scan of the host looks at it", EBUSY});
  if (share_.has_any(key, system_clock_source().monotonic_ns())) {
    accepted = worker_.run<ContainerWalk>(
        {key, "scan", object, kDeadline},
        [scanner = scanner_, process = **process]() -> Result<ContainerWalk> {
          const auto began = discover::thread_cpu_time();
          auto walked = scanner.walk(process, {kProcessTime, kProcessRecords});
          if (!walked) return fail(walked.error());
          ContainerWalk result;
          result.mappings = std::move(walked->mappings);
          result.cost = discover::thread_cpu_time() - began;
          return result;
        },
        [this, key, done = std::move(done)](Result<ContainerWalk> walked) {
          if (!walked) return done(fail(walked.error()));
          share_.charge(key, system_clock_source().monotonic_ns(),
                        static_cast<double>(walked->cost.count()));
          done(std::move(walked->mappings));
        });
  }
  if (!accepted) ++postponed_;
  return accepted;
}

}  // namespace ingero::app
