// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "bpf/wire.h"

namespace ingero::record {

/// Rows of calls between ncclGroupStart and ncclGroupEnd: there a call only queues, and its work is done in the
/// end of the outermost group. For one thread.
class OpenGroups {
 public:
  /// `max_rows` of all threads together: of the cgroup that has most of them, all are forgotten when there are
  /// more.
  explicit OpenGroups(std::size_t max_rows = std::size_t{1} << 20) : max_rows_(max_rows) {}

  /// A call inside a group, and its row.
  void add(const call_event& call, std::int64_t row);

  /// The end of an outermost group. Returns the rows that waited for it.
  std::vector<std::int64_t> end(const call_event& call);

 private:
  struct Thread {
    std::uint64_t process_start_ns;
    std::uint32_t tid;
    bool operator==(const Thread&) const = default;
  };
  struct Hash {
    std::size_t operator()(const Thread& thread) const {
      return (thread.process_start_ns ^ thread.tid) * 0x9e3779b97f4a7c15ULL;
    }
  };
  struct Group {
    std::uint32_t number = 0;
    std::uint64_t cgroup = 0;
    std::vector<std::int64_t> rows;
  };
  using Groups = std::unordered_map<Thread, Group, Hash>;

  static Thread thread_of(const call_event& call) {
    return {call.header.process_start_ns, call.header.tid};
  }
  void forget_largest_cgroup();

  std::size_t max_rows_;
  std::size_t rows_ = 0;
  Groups groups_;
};

}  // namespace ingero::record
