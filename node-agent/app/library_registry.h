// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <map>
#include <mutex>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "app/library_room.h"
#include "attach/library_probes.h"
#include "base/deadline_worker.h"
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
/// find. For one thread, which the worker's results come to; fill() and what only reads may be called from
/// any.
class LibraryRegistry {
 public:
  using Clock = std::chrono::steady_clock;

  /// All must outlive the object. set_finder() comes before the first scan.
  LibraryRegistry(attach::LibraryProbes& probes, collect::CommLayouts& layouts,
                  DeadlineWorker& worker, model::AttachMethod method, ProbeChoice choice)
      : probes_(probes),
        layouts_(layouts),
        worker_(worker),
        method_(method),
        choice_(choice),
        room_(descriptors_for_libraries()) {}
  void set_finder(discover::LibraryFinder* finder) { finder_ = finder; }

  /// Attaches to a file in the background, and counts its mappers.
  void discovered(discover::Discovery discovery);
  void refused(const model::Refusal& refusal);
  /// Somebody opened a file for writing, and its probes are gone.
  void written(const model::FileKey& file);

  /// A scan of the whole host: processes that it does not show are gone.
  void full_scan(discover::ScanResult result);
  /// A scan of one process.
  void process_scan(std::uint32_t pid, discover::ScanResult result);
  /// So many processes were not looked at when they should have been.
  void scans_postponed(std::uint64_t count);
  void process_ended(const model::ProcessKey& process);

  /// From now on these are wanted. Probes that are no longer wanted stay, since the kernel side does not
  /// count them; libraries that lack a probe are attached anew by the next scan of the host.
  void set_choice(ProbeChoice choice);

  /// Removes probes of files that nobody has mapped for `grace`.
  void detach_unused(std::chrono::nanoseconds grace);

  /// Processes, libraries, refusals and failures.
  void fill(model::Snapshot& snapshot) const;

  std::vector<model::Process> processes() const;
  /// Where they live.
  std::unordered_set<model::CgroupId, model::IdentityHash> cgroups() const;
  /// A process for each mapped file with probes.
  std::set<model::ProcessKey> mappers() const;
  /// Version text of the library with this index; empty when unknown.
  std::string version_of(std::uint32_t index) const;
  bool empty() const;

 private:
  struct Entry {
    model::Library library;
    std::vector<model::Library::Probe> wanted;  ///< become the library's when they are in place
    std::uint32_t index = 0;                    ///< 0: it has none, and no probes
    std::uint64_t attempt = 0;  ///< of the attach: an answer to another one is too late
    bool attaching = false;
    std::size_t mappers = 0;
    bool left_out = false;  ///< a function of it was not wanted
    Clock::time_point unused_since;
  };
  using Entries = std::unordered_map<model::FileKey, Entry, model::IdentityHash>;

  void attach(discover::Discovery& discovery);
  Result<std::uint32_t> take_room(const discover::Discovery& discovery, std::size_t descriptors);
  void attached(const model::FileKey& file, std::uint64_t attempt, std::uint32_t pid,
                std::uint64_t noticed_ns, Result<std::shared_ptr<attach::GuardedFile>> probes);
  void fail_attach(Entries::iterator entry, std::uint32_t pid, const Error& error);
  void drop_changed(const std::vector<model::FileKey>& files);
  Entries::iterator drop(Entries::iterator entry);
  void release(Entry& entry);
  void merge(const std::vector<model::Process>& mappers);
  void note_failure(const std::string& reason, std::string message, std::uint32_t pid);
  void recount_mappers();

  discover::LibraryFinder* finder_ = nullptr;
  attach::LibraryProbes& probes_;
  collect::CommLayouts& layouts_;
  DeadlineWorker& worker_;
  model::AttachMethod method_;
  ProbeChoice choice_;

  mutable std::mutex mutex_;
  LibraryRoom room_;
  std::map<model::ProcessKey, model::Process> processes_;
  /// When a process was seen by itself, or ended, since the last scan of the host began: that scan knows less.
  std::map<model::ProcessKey, std::uint64_t> seen_ns_, ended_ns_;
  Entries libraries_;
  std::map<std::uint32_t, std::string> versions_;   ///< by library index
  std::map<std::string, model::Refusal> refusals_;  ///< by message; bounded
  std::map<std::string, std::uint64_t> failures_;
  std::uint64_t attempts_ = 0;
  std::uint64_t full_scans_ = 0;
  std::uint64_t processes_seen_ = 0;
};

}  // namespace ingero::app
