// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/deadline_worker.h"
#include "bpf/wire.h"
#include "collect/comm_structure.h"
#include "model/bpf_handles.h"
#include "model/identity.h"
#include "model/snapshot.h"

namespace ingero::collect {

/// A communicator, and whose it is.
struct CommPlace {
  comm_key key{};
  std::uint64_t cgroup = 0;
  std::uint32_t library = 0;
};

/// What is known of the structure of one library file's communicators, for one container.
struct LayoutState {
  std::uint32_t library = 0;
  std::uint64_t cgroup = 0;
  std::uint32_t rank_offset = 0;  ///< 0: not known, or known to be wrong
  bool found = false;             ///< in this container's communicators, not by the release's name
  std::size_t samples = 0;        ///< that it was or is being found in
  std::uint64_t verified = 0;     ///< communicators that had their arguments' rank and size there
  std::uint64_t mismatches = 0;   ///< communicators that had something else there
};

/// Where each library keeps rank and size in its communicators: by the release's name, or found in
/// communicators whose ranks the arguments told. Each container learns for itself, so none can teach
/// another one something wrong, and what is used is compared with the container's own communicators
/// again and again. Reads of their memory run on the worker. Thread safe.
class CommLayouts {
 public:
  /// Without a worker no memory is read.
  explicit CommLayouts(const model::BpfHandles& handles, DeadlineWorker* worker = nullptr)
      : handles_(handles), worker_(worker) {}

  /// A library was attached under `index`. The releases are NVIDIA's: RCCL's numbers mean others.
  void add_library(std::uint32_t index, std::string_view nccl_version,
                   model::LibraryKind kind = model::LibraryKind::kNccl);

  /// A communicator was made whose ranks the arguments told: the layout is checked with it, or sought.
  void check(const CommPlace& place, const CommRanks& ranks, std::uint64_t created_ns);

  /// Once a second: looks again at communicators that were not finished yet.
  void look_again();

  /// Ranks of a communicator that the kernel side does not know; nullopt: not known yet. Asked for again
  /// and again, it is read when the layout is trusted.
  std::optional<CommRanks> ranks_of(const CommPlace& place);
  /// What was learned before, if anything.
  std::optional<CommRanks> known_ranks(const comm_key& key) const;
  /// Reads what was asked for since the last time.
  void resolve_asked();
  /// Drops what is known of communicators that are gone.
  void drop_gone();

  /// These containers are gone.
  void forget(const std::unordered_set<model::CgroupId, model::IdentityHash>& cgroups);

  /// Adds the counts of reads that failed and of layouts that were wrong.
  void add_counts(std::map<std::string, std::uint64_t>& events_lost) const;
  std::vector<LayoutState> states() const;

 private:
  using Id = std::tuple<std::uint64_t, std::uint64_t, std::uint32_t, std::uint32_t>;
  using Owner = std::pair<std::uint64_t, std::uint32_t>;  ///< cgroup, library
  struct Learned {
    std::optional<CommStructure> structure;
    bool found = false;
    bool listed_is_wrong = false;
    CommSamples samples;
    std::set<std::pair<Id, std::uint64_t>> sampled;  ///< with its birth: each counts once
    std::uint64_t verified = 0;
    std::uint64_t mismatches = 0;
    std::uint64_t next_check_ns = 0;
    std::uint64_t next_search_ns = 0;
    std::uint64_t searches = 0;
  };
  struct Example {
    CommPlace place;
    CommRanks ranks;
    std::uint64_t created_ns = 0;
    int looks = 0;
  };
  struct Asked {
    CommPlace place;
    std::uint64_t next_ns = 0;
    std::uint64_t pause_ns = 0;
  };
  struct Window;
  struct Resolved;

  Learned* learned_of(const CommPlace& place);
  std::optional<CommStructure> structure_of(const CommPlace& place) const;
  void look_at(const Example& example);
  void compare(Learned& learned, const Example& example, const CommStructure& structure);
  void compared(const Example& example, const CommStructure& structure,
                const Result<Window>& window);
  void search(Learned& learned, const Example& example);
  void searched(const Example& example, const Result<std::vector<std::uint32_t>>& places);
  void reject(Learned& learned, const CommPlace& place);
  void look_later(Example example);
  void keep(const Example& example);
  void publish(const CommPlace& place, std::uint64_t cgroup, const CommStructure& structure) const;
  void withdraw(std::uint32_t library, std::uint64_t cgroup) const;
  void submit_asked(std::uint64_t cgroup, std::vector<CommPlace> places);
  template <typename T>
  bool submit(const CommPlace& place, std::function<Result<T>()> work,
              std::function<void(const Result<T>&)> done);
  void count(const CommPlace& place, const Error& error);

  const model::BpfHandles handles_;
  DeadlineWorker* const worker_;
  mutable std::mutex mutex_;
  std::map<std::uint32_t, CommStructure> listed_;  ///< by library
  std::map<Owner, Learned> learned_;
  std::deque<Example> unfinished_;
  std::map<Id, Asked> asked_;
  std::map<Id, CommRanks> resolved_;
  std::uint64_t hung_ = 0;
  std::uint64_t refused_ = 0;
  std::uint64_t mismatches_ = 0;
};

}  // namespace ingero::collect
