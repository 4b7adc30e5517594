// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "record/call_scan.h"
#include "record/recording.h"

namespace ingero::record {

/// Calls added up. Bytes are those of calls without an error.
struct CallSums {
  std::uint64_t calls = 0, errors = 0;
  double bytes = 0, duration_ns = 0, longest_ns = 0;
  void add(const ScannedCall& call, bool failed);
  void add(const CallSums& other);
  double mean_ns() const;
};

/// Moments or spans of the kernel's side, by time, of each file.
class Moments {
 public:
  struct Moment {
    std::int64_t unix_ns, duration_ns, owner;  ///< owner -1: not known
  };
  struct Found {
    std::uint64_t count = 0;
    std::int64_t duration_ns = 0, longest_ns = 0;
  };

  /// `select` gives time, length and owner, in the order of time; {} in it is the file.
  static Result<Moments> read(const Recording& recording, const char* select);

  std::uint64_t count() const { return count_; }
  /// Whether a file has more of them than are looked at.
  bool is_cut() const { return cut_; }
  /// Those that begin while the call runs and belong to `owner`, or to nobody that is known.
  Found within(const ScannedCall& call, std::int64_t owner) const;
  /// How many begin in each of `points` equal parts of the time from `begin_ns` to `end_ns`.
  std::vector<std::uint64_t> over_time(std::int64_t begin_ns, std::int64_t end_ns,
                                       std::size_t points) const;

 private:
  std::vector<std::vector<Moment>> of_node_;
  std::uint64_t count_ = 0;
  bool cut_ = false;
};

/// A collective with what the kernel saw while it ran.
struct SeenCall {
  ScannedCall call;
  std::uint64_t retransmits = 0;
  std::int64_t waited_ns = 0;  ///< for a CPU
  Moments::Found off_cpu;      ///< asleep, or waiting for something
};

/// How often a rank came last, and by how much.
struct Late {
  struct Rank {
    std::uint64_t times = 0;
    double sum_ns = 0;
    const CallContext* context = nullptr;  ///< of its last call
  };
  std::map<std::int32_t, Rank> last;
  std::uint64_t collectives = 0;
  std::size_t ranks = 0;  ///< that were compared

  /// The rank that the others waited for longest.
  const std::pair<const std::int32_t, Rank>& worst() const;
  double longest_ns = 0;
};

/// What the page is made of, from one pass over each table.
struct ReportData {
  static constexpr std::size_t kPlotPoints = 120;
  static constexpr std::size_t kMostHindered = 10;

  struct Node {
    std::string kernel;
    std::int64_t from_ns = 0, to_ns = 0;
    std::string end_reason;           ///< empty: it does not say
    std::int64_t clock_moved_ns = 0;  ///< the farthest that the wall clock was from where it began
  };
  struct OfRank {
    CallSums sums;
    SeenCall slowest;
    std::vector<double> longest_by_time;  ///< milliseconds; negative: none
  };
  /// Communicator, rank, node.
  using RankKey = std::tuple<std::string, std::int32_t, std::size_t>;

  std::vector<Node> nodes;  ///< in the order of the recording's
  /// Pod and container, or container alone, by node and cgroup.
  std::map<std::pair<std::size_t, std::int64_t>, std::string> containers;
  std::int64_t begin_ns = 0, end_ns = 0;
  std::map<std::string, std::uint64_t> losses;
  std::map<std::string, CallSums> operations, directions;
  std::map<std::pair<std::string, std::int64_t>, std::uint64_t> errors;  ///< function, result
  std::map<RankKey, OfRank> ranks;
  std::vector<SeenCall> hindered;  ///< slowest with retransmits or waits in them, slowest first
  std::map<std::string, Late> late;
  std::uint64_t unmatched = 0, mismatched = 0, damaged = 0, left_out = 0, with_retransmits = 0,
                with_waits = 0;
  Moments retransmits, waits, off_cpu;
  std::unique_ptr<CallScan> nccl;  ///< the calls above refer to its contexts
};

/// The watch ends it with an error whose cause is "interrupted".
Result<ReportData> read_report_data(const Recording& recording, const Watch& watch);

}  // namespace ingero::record
