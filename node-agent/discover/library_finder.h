// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/deadline_worker.h"
#include "discover/file_inspector.h"
#include "discover/inspection_budget.h"
#include "discover/look_again.h"
#include "discover/mapping_scanner.h"
#include "model/snapshot.h"

namespace ingero::discover {

/// A file that is to be traced, and who maps it.
struct Discovery {
  FoundLibrary library;
  std::vector<model::Process> mappers;  ///< those seen while it was looked into
  std::uint64_t noticed_ns = 0;         ///< CLOCK_MONOTONIC of the mapping; 0: found by a scan
};

struct ScanResult {
  std::vector<model::Process> processes;  ///< those that map at least one traced file
  std::set<std::string> traced_paths;     ///< as the processes see the traced files
  std::vector<model::FileKey> changed;    ///< traced until now: their content is another
  bool incomplete = false;                ///< a file is being looked into: scan again soon
  /// They map a file that is not settled: it waits, or is to be tried again.
  std::set<model::ProcessKey> unsettled;
  /// Not looked at: they map what they mapped, as far as anybody knows.
  std::set<model::ProcessKey> left_out;
  std::uint64_t began_ns = 0;  ///< CLOCK_MONOTONIC: what was seen later is newer
};

/// Decides for each version of each mapped file whether it is to be traced. Candidates come by name
/// pattern for what is said about failures, but are confirmed by exported symbols only. Files are opened
/// and read by the worker, one at a time for each container and within its budget; the rest belongs to the
/// thread that the worker's results come to.
class LibraryFinder {
 public:
  using Time = InspectionBudget::Time;
  struct Handlers {
    std::function<void(Discovery)> found;
    /// A candidate that cannot be traced, and why.
    std::function<void(const model::Refusal&)> refused;
    /// Whether nobody can have written to a traced file: another version of it has other names or times.
    std::function<bool(const model::FileKey&)> is_leased;
  };

  /// `worker` must outlive the object.
  LibraryFinder(const MappingScanner& scanner, OpenPreference preference, DeadlineWorker& worker,
                Handlers handlers)
      : scanner_(scanner),
        preference_(preference),
        worker_(worker),
        handlers_(std::move(handlers)) {}

  /// Files that nobody has looked into are given to the worker. `noticed_ns`: CLOCK_MONOTONIC of the mapping
  /// that led to the scan; 0: none.
  ScanResult sort_out(const std::vector<FileMapping>& mappings, std::uint64_t noticed_ns = 0);

  /// The file is to be opened and reported as found again (it was detached).
  void forget(const model::FileKey& file) { traced_.erase(file); }
  /// The same, after a while that grows from time to time (its attach failed).
  void forget_for_now(const model::FileKey& file);
  /// The same, but another process may bring it at once (these have no share left).
  void forget_for_now(const model::FileKey& file, const std::vector<model::Process>& mappers);
  void attached(const model::FileKey& file) { failed_.succeeded({{}, file}); }

  /// Whether a scan would try something again that failed. Told once.
  bool take_due() { return failed_.take_due(std::chrono::steady_clock::now()); }

  /// How many files were looked into.
  std::size_t files_inspected() const { return inspected_; }
  /// How many are being looked into, or wait for it.
  std::size_t files_waiting() const { return waiting_.size(); }

 private:
  /// A file that is to be looked into: by way of the first of its mappings that leads to it.
  struct Waiting {
    std::vector<FileMapping> mappings;
    std::uint64_t noticed_ns = 0;
    bool deferred = false;  ///< it was told that its container has no budget
  };
  /// The files of one container. One is looked into at a time.
  struct Queue {
    std::deque<model::FileKey> files;
    bool busy = false;
  };

  bool is_traced(const FileMapping& mapping, ScanResult& result);
  bool is_set_aside(const FileMapping& mapping);
  bool is_due(const FileMapping& mapping) const;
  void wait_for(const FileMapping& mapping, std::uint64_t noticed_ns, ScanResult& result);
  void inspect_next(model::CgroupId container);
  void inspect(const FileMapping& mapping);
  void inspected(const FileMapping& mapping, Inspection inspection);
  void settle(const FileMapping& mapping, Inspection inspection);
  void discovered(const FileMapping& mapping, Inspection inspection);
  void try_next_way(const FileMapping& mapping);
  void set_aside(const FileMapping& mapping);
  void refuse(const FileMapping& mapping, const std::string& reason, const std::string& why);

  const MappingScanner scanner_;
  const OpenPreference preference_;
  DeadlineWorker& worker_;
  const Handlers handlers_;
  std::unordered_map<model::FileKey, FileVersion, model::IdentityHash> traced_, set_aside_;
  std::unordered_map<model::FileKey, Waiting, model::IdentityHash> waiting_;
  std::map<model::CgroupId, Queue> queues_;
  InspectionBudget budget_;
  /// Ways to a file, by process, that failed; the process is empty where the file itself is not to be tried.
  LookAgain failed_;
  std::size_t inspected_ = 0;
};

/// Whether a file name is that of a library the agent is looking for, so that a failure with it is
/// worth telling: libnccl, librccl, libcudart, libcuda and what is known to contain them.
bool is_candidate_name(std::string_view path);

}  // namespace ingero::discover
