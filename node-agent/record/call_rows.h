// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <unordered_map>
#include <unordered_set>

#include "record/database.h"
#include "record/events.h"
#include "record/open_groups.h"

namespace ingero::record {

/// Writes calls as rows of nccl_calls and cuda_calls with their contexts, and notes the processes,
/// communicators and cgroups that are new. Belongs to one thread.
class CallRows {
 public:
  using NewProcesses = std::unordered_map<model::ProcessKey, std::uint64_t, model::IdentityHash>;

  static Result<CallRows> create(sqlite3* database);

  /// SQLITE_DONE, or SQLite's error code: then nothing of the open transaction may be kept.
  int write(const RecordedCall& call);

  std::uint64_t nccl_calls() const { return nccl_calls_; }
  std::uint64_t cuda_calls() const { return cuda_calls_; }

  /// Processes of written calls that were not known before, with their cgroups; the caller takes them
  /// away.
  NewProcesses& new_processes() { return new_processes_; }
  /// Of all written calls.
  const std::unordered_set<std::uint64_t>& cgroups() const { return cgroups_; }
  /// A cgroup that rows of other tables name.
  void note_cgroup(std::uint64_t cgroup_id);

 private:
  /// All that tells contexts apart, as words.
  using ContextKey = std::array<std::uint64_t, 9>;
  struct ContextHash {
    std::size_t operator()(const ContextKey& key) const;
  };
  using Contexts = std::unordered_map<ContextKey, std::int64_t, ContextHash>;

  CallRows(sqlite3* database, Statement nccl_call, Statement nccl_context, Statement cuda_call,
           Statement cuda_context, Statement communicator, Statement group_end)
      : database_(database),
        nccl_call_(std::move(nccl_call)),
        nccl_context_(std::move(nccl_context)),
        cuda_call_(std::move(cuda_call)),
        cuda_context_(std::move(cuda_context)),
        communicator_(std::move(communicator)),
        group_end_(std::move(group_end)) {}

  int write_nccl(const RecordedCall& call);
  int write_cuda(const RecordedCall& call);
  int follow_group(const RecordedCall& call);
  int new_nccl_context(const call_event& event, std::int64_t id);
  int new_cuda_context(const call_event& event, std::int64_t id);
  void note_process(const call_event& event);

  sqlite3* database_;
  Statement nccl_call_, nccl_context_, cuda_call_, cuda_context_, communicator_, group_end_;
  OpenGroups open_groups_;
  Contexts nccl_contexts_, cuda_contexts_;
  std::int64_t last_context_ = 0;
  std::uint64_t nccl_calls_ = 0, cuda_calls_ = 0;
  std::unordered_set<model::ProcessKey, model::IdentityHash> processes_;
  NewProcesses new_processes_;
  std::unordered_set<std::uint64_t> cgroups_;
};

}  // namespace ingero::record
