// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "record/recording.h"

namespace ingero::record {

/// What repeats from call to call: a row of nccl_contexts or cuda_contexts.
struct CallContext {
  std::size_t index = 0;  ///< among the contexts of all files, dense
  std::size_t node = 0;   ///< in Recording::nodes()
  std::string op, function, comm_id_hash, direction;
  std::optional<std::int32_t> rank;
  std::optional<std::int64_t> nranks;
  std::int64_t pid = 0, tid = 0, process_start_ns = 0, cgroup_id = 0;
};

struct ScannedCall {
  const CallContext* context = nullptr;
  std::int64_t unix_ns = 0, duration_ns = 0;  ///< never negative; their sum does not overflow
  std::int64_t span_ns = 0;                   ///< duration, in a group until that has ended
  std::optional<std::int64_t> bytes;
  std::int64_t sequence = 0;  ///< 0: none
  std::int64_t result = 0;
  std::int64_t end_ns() const { return unix_ns + span_ns; }
};

enum class CallTable { kNccl, kCuda };

/// Goes through all calls of all files once, merged by time; several times as fast as a query of the view.
class CallScan {
 public:
  static Result<CallScan> create(const Recording& recording, CallTable table);

  /// False: that was the last one.
  Result<bool> next(ScannedCall& call);

  using Contexts = std::unordered_map<std::int64_t, CallContext>;
  /// Of each file.
  const std::vector<Contexts>& contexts() const { return contexts_; }
  std::size_t context_count() const { return context_count_; }
  /// Calls whose context is missing: the file is damaged.
  std::uint64_t damaged() const { return damaged_; }
  /// Calls of contexts for which there was no room: more than a million in a file.
  std::uint64_t left_out() const { return left_out_; }

 private:
  struct Source {
    Statement rows;
    ScannedCall head;
    bool has_all_contexts = true;
    bool ended = false;
  };
  CallScan(sqlite3* database, CallTable table) : database_(database), table_(table) {}
  Status add(const Recording::Node& node, std::size_t index);
  Status advance(std::size_t index);

  sqlite3* database_;
  CallTable table_;
  std::vector<Source> sources_;
  std::vector<Contexts> contexts_;
  std::size_t context_count_ = 0;
  std::uint64_t damaged_ = 0, left_out_ = 0;
};

/// A number from a file, into the range in which sums of two cannot overflow.
std::int64_t bounded_time(std::int64_t value);

/// At most 200 bytes of a text from a file.
std::string bounded_text(const Statement& row, int column);

}  // namespace ingero::record
