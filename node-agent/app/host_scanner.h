// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "base/deadline_worker.h"
#include "base/share_budget.h"
#include "discover/mapping_scanner.h"

namespace ingero::app {

/// What a scan of the host has shown.
struct HostScan {
  std::vector<discover::FileMapping> mappings;
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

  /// Calls `done` when all containers have been walked over, or given up; within seconds. One at a time.
  void scan_host(HostDone done);
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
    std::size_t under_way = 0;
  };
  using Processes = std::vector<discover::RunningProcess>;

  static ContainerWalk walk_container(const discover::MappingScanner& scanner,
                                      const Processes& processes);
  static ContainerWalk walk_everybody(const discover::MappingScanner& scanner,
                                      const Processes& processes);
  void listed(Result<Processes> processes);
  void walk_group(std::uint64_t key, Processes processes);
  void leave_out(const Processes& processes);
  void finish_one();
  void finish(Result<HostScan> result);

  const discover::MappingScanner scanner_;
  DeadlineWorker worker_;
  std::shared_ptr<Scan> scan_;  ///< null: none
  ShareBudget share_;           ///< of the time for scans of single processes, by container
  std::set<model::ProcessKey> left_out_before_;
  std::uint64_t postponed_ = 0;
};

}  // namespace ingero::app
