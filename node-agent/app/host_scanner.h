// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/deadline_worker.h"
#include "base/share_budget.h"
#include "discover/mapping_scanner.h"

namespace ingero::app {

/// What a scan of the host has shown.
struct HostScan {
  std::vector<discover::FileMapping> mappings;
  /// All that had an address space when the scan began; who began later may be missing.
  std::unordered_set<model::ProcessKey, model::IdentityHash> running;
  std::uint64_t listed_boot_ns = 0;  ///< CLOCK_BOOTTIME, as the starts of processes
  /// Nothing speaks for a change since their last walk, so they were not walked over.
  std::set<model::ProcessKey> unchanged;
  /// Not walked over, or not to the end: what they map is as it was, as far as anybody knows.
  std::set<model::ProcessKey> left_out;
  std::uint64_t began_ns = 0;  ///< CLOCK_MONOTONIC
};

/// Walks over the mappings of processes on threads of its own, one container at a time on each and for a bounded
/// time: neither many threads, mappings and processes of a container nor a process that holds its locks keeps
/// others from being seen. For the thread that the executor posts to.
class HostScanner {
 public:
  using HostDone = std::function<void(Result<HostScan>)>;
  using ProcessDone = std::function<void(Result<std::vector<discover::FileMapping>>)>;

  HostScanner(const discover::MappingScanner& scanner, DeadlineWorker::Executor executor);

  /// Something else tells of new mappings. A process of which nothing was left to be looked at is then
  /// walked over again when it has another number of mappings, or in one scan of thirty.
  void trust_events(bool trusted) { trusts_events_ = trusted && scanner_.walks_single_processes(); }
  /// The next scan walks over these; over all.
  void look_again(const model::ProcessKey& process) { settled_.erase(process); }
  void look_at_all() { walks_all_ = true; }

  /// Calls `done` when all containers have been walked over, or given up; within seconds. One at a time.
  /// `always`: walked over although nothing speaks for a change.
  void scan_host(std::set<model::ProcessKey> always, HostDone done);
  bool is_scanning() const { return scan_ != nullptr; }

  /// The mappings of one process; none where it is gone. An error here, EBUSY: its container has used up its
  /// share, and `done` is never called.
  Status scan_process(std::uint32_t pid, ProcessDone done);

  /// Scans that a container's share did not cover, since the last question: processes that were left out,
  /// and scans of single processes that were refused.
  std::uint64_t take_postponed() { return std::exchange(postponed_, 0); }

 private:
  struct ContainerWalk {
    std::vector<discover::FileMapping> mappings;
    std::vector<model::ProcessKey> left_out;
    std::chrono::nanoseconds cost{0};
  };
  struct Scan {
    HostScan result;
    HostDone done;
    std::set<model::ProcessKey> always;
    bool all = false;  ///< nobody is passed over
    std::size_t under_way = 0;
  };
  using Process = discover::RunningProcess;
  using Processes = std::vector<Process>;

  static ContainerWalk walk_container(const discover::MappingScanner& scanner,
                                      const Processes& processes);
  static ContainerWalk walk_everybody(const discover::MappingScanner& scanner,
                                      const Processes& processes);
  void listed(Result<Processes> processes);
  bool may_skip(const Process& process) const;
  void settle(const Processes& processes, const ContainerWalk& walk);
  void walk_group(std::uint64_t key, Processes processes);
  void leave_out(const Processes& processes);
  void finish_one();
  void finish(Result<HostScan> result);

  const discover::MappingScanner scanner_;
  DeadlineWorker worker_;
  std::shared_ptr<Scan> scan_;  ///< null: none
  ShareBudget share_;           ///< of the time for scans of single processes, by container
  std::set<model::ProcessKey> left_out_before_;
  /// How many mappings those had whose last walk came to its end.
  std::unordered_map<model::ProcessKey, std::uint32_t, model::IdentityHash> settled_;
  bool trusts_events_ = false, walks_all_ = false;
  std::uint64_t scans_ = 0;
  std::uint64_t postponed_ = 0;
};

}  // namespace ingero::app
