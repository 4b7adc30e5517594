// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "attach/library_probes.h"
#include "collect/comm_layout.h"
#include "discover/library_finder.h"
#include "model/snapshot.h"

namespace ingero::app {

/// Which probes are wanted.
struct ProbeChoice {
  bool nccl = true;
  bool cuda = true;
  bool operator==(const ProbeChoice&) const = default;
};

/// What is mapped where, and what is attached: brings the held probes in line with what the scans
/// find. Scans come from one thread; fill() may be called from any.
class LibraryRegistry {
 public:
  using Clock = std::chrono::steady_clock;

  LibraryRegistry(discover::LibraryFinder& finder, attach::LibraryProbes& probes,
                  collect::CommLayouts& layouts, model::AttachMethod method, ProbeChoice choice)
      : finder_(finder), probes_(probes), layouts_(layouts), method_(method), choice_(choice) {}

  /// A scan of the whole host: processes that it does not show are gone. `noticed_ns`, where not 0, is
  /// the CLOCK_MONOTONIC time of the mapping that led to the scan.
  void full_scan(discover::ScanResult result);
  /// A scan of one process.
  void process_scan(std::uint32_t pid, discover::ScanResult result, std::uint64_t noticed_ns);
  void process_ended(const model::ProcessKey& process);

  /// From now on these are wanted. Probes that are no longer wanted stay, since the kernel side does not
  /// count them; libraries that lack a probe are attached anew by the next scan of the host.
  void set_choice(ProbeChoice choice);

  /// Removes probes of files that nobody has mapped for `grace`.
  void detach_unused(std::chrono::nanoseconds grace);

  /// Processes, libraries, refusals and failures.
  void fill(model::Snapshot& snapshot) const;

  std::vector<model::Process> processes() const;
  /// Version text of the library with this index; empty when unknown.
  std::string version_of(std::uint32_t index) const;
  bool empty() const;

 private:
  struct Entry {
    model::Library library;
    std::uint32_t index = 0;
    std::size_t mappers = 0;
    bool left_out = false;  ///< a function of it was not wanted
    Clock::time_point unused_since;
  };

  void attach_found(std::vector<discover::FoundLibrary> found, std::uint64_t noticed_ns);
  void attach_one(discover::FoundLibrary& found, std::uint64_t noticed_ns);
  void add_refusals(const std::vector<model::Refusal>& refusals);
  void note_failure(const std::string& reason, std::string message, std::uint32_t pid);
  void recount_mappers();

  discover::LibraryFinder& finder_;
  attach::LibraryProbes& probes_;
  collect::CommLayouts& layouts_;
  model::AttachMethod method_;
  ProbeChoice choice_;

  mutable std::mutex mutex_;
  std::map<model::ProcessKey, model::Process> processes_;
  std::unordered_map<model::FileKey, Entry, model::IdentityHash> libraries_;
  std::vector<std::string> versions_{""};           ///< by library index; index 0 stands for none
  std::map<std::string, model::Refusal> refusals_;  ///< by message; bounded
  std::map<std::string, std::uint64_t> failures_;
  std::uint64_t full_scans_ = 0;
  std::uint64_t processes_seen_ = 0;
};

}  // namespace ingero::app
