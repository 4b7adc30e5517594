// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/histogram.h"
#include "model/identity.h"

namespace ingero::model {

/// Totals since the agent started, of one function (and copy direction).
struct CallTotals {
  std::uint64_t calls = 0;
  std::uint64_t errors = 0;
  std::uint64_t bytes = 0;        ///< of successful calls
  std::uint64_t duration_ns = 0;  ///< sum over the calls whose return was seen
  std::uint64_t unfinished = 0;   ///< calls whose return was not seen
  std::uint64_t barriers = 0;     ///< collectives followed by a host synchronize of their stream
  std::uint64_t slow = 0;         ///< calls that took longer than the threshold
  SizeCounts sizes{};             ///< copies only: sizes of successful calls
  DurationCounts durations{};     ///< calls whose return was seen

  void add(const CallTotals& other);
};

struct CallSeries {
  ProcessKey process;  ///< tgid 0: processes that have ended, or found no entry of their own
  CgroupId cgroup = CgroupId::kUnknown;
  std::uint16_t function = 0;  ///< id in bpf/api_functions.h
  std::uint8_t direction = 0;  ///< enum copy_direction; copies only
  CallTotals totals;
};

/// Stands for the codes of a function that found no room of their own.
inline constexpr std::int32_t kOtherErrorCode = std::numeric_limits<std::int32_t>::min();

struct ErrorSeries {
  CgroupId cgroup = CgroupId::kUnknown;
  std::uint16_t function = 0;
  std::int32_t code = 0;
  std::uint64_t count = 0;
};

struct Communicator {
  ProcessKey process;
  CgroupId cgroup = CgroupId::kUnknown;
  std::uint64_t handle = 0;               ///< the ncclComm_t
  std::uint64_t id_hash = 0;              ///< of the 128-byte unique id; 0: not known
  std::int32_t rank = -1;                 ///< -1: not known
  std::uint32_t nranks = 0;               ///< 0: not known
  std::uint64_t collectives = 0;          ///< sequence number
  std::int64_t created_unix_ns = 0;       ///< 0: before the agent
  std::int64_t last_enqueue_unix_ns = 0;  ///< 0: none
  std::uint64_t parent = 0;
  std::uint16_t function = 0;  ///< that created it; 0: made before the agent
  std::string name;
  std::string library_version;
  std::uint32_t library = 0;  ///< index that the agent gave the library file; 0: not known
};

/// What communicators that are gone have counted, by the labels that they had.
struct EndedCollectives {
  CgroupId cgroup = CgroupId::kUnknown;
  std::uint64_t id_hash = 0;
  std::int32_t rank = -1;
  std::uint64_t collectives = 0;
};

enum class AttachMethod { kNone, kSession, kMulti, kPerf, kEntryOnly };

/// "session", "multi", "perf", "entry_only", "none"
std::string_view to_string(AttachMethod method);

enum class LibraryKind { kNccl, kRccl, kCudart, kCuda, kOther };

/// "nccl", "rccl", "cudart", "cuda", "other"
std::string_view to_string(LibraryKind kind);

/// A file that some process maps and that exports traced functions, or was refused.
struct Library {
  FileKey file;
  std::string path;  ///< as one of its processes sees it
  LibraryKind kind = LibraryKind::kOther;
  std::string version;  ///< "2.28.9"; empty: not known
  AttachMethod method = AttachMethod::kNone;
  struct Probe {
    std::string symbol;
    std::uint64_t offset = 0;  ///< file offset
    bool moved = false;        ///< behind endbr64 or bti c
  };
  std::vector<Probe> probes;
  std::string reason;  ///< why it is not attached; empty when it is
  std::vector<std::pair<std::string, std::string>> refused;  ///< symbol, why it has no probe
  std::uint64_t attach_ns = 0;  ///< from noticing the mapping to the probes being in place
};

struct Process {
  ProcessKey key;
  CgroupId cgroup = CgroupId::kUnknown;
  std::string comm;
  std::vector<FileKey> libraries;  ///< traced files it maps
  bool counted = true;             ///< false: no policy covers it, or it is not known yet who it is
};

/// One thing that was refused or failed, for /debug/state and ingero_attach_failures_total.
struct Refusal {
  std::string reason;   ///< closed set, the metric's label
  std::string message;  ///< the whole story
  std::uint32_t pid = 0;
  std::uint64_t count = 1;
};

/// Segments that TCP sent again since the agent started.
struct RetransmitSeries {
  CgroupId cgroup = CgroupId::kUnknown;  ///< as those of calls; as read: of the v2 hierarchy
  std::uint32_t netns = 0;               ///< inode number of the network namespace
  bool ipv6 = false;
  bool whole_pod = false;  ///< known by its network namespace: one of the pod's containers
  std::uint64_t segments = 0;
};

/// Waits of threads for a processor since the agent started.
struct WaitSeries {
  ProcessKey process;  ///< tgid 0: processes that have ended
  CgroupId cgroup = CgroupId::kUnknown;
  std::uint64_t waits = 0;
  std::uint64_t wait_ns = 0;
  DurationCounts durations{};
};

/// Everything the readers need, immutable once made.
struct Snapshot {
  std::int64_t unix_ns = 0;
  std::vector<CallSeries> calls;
  std::vector<ErrorSeries> errors;
  std::vector<Communicator> communicators;
  std::vector<EndedCollectives> ended_collectives;
  std::vector<RetransmitSeries> retransmits;
  std::vector<WaitSeries> waits;
  std::vector<Process> processes;
  std::vector<Library> libraries;
  std::vector<Refusal> refusals;
  std::uint64_t folded_error_codes = 0;              ///< counted as kOtherErrorCode
  std::map<std::string, std::uint64_t> events_lost;  ///< reason -> count; every reason, also 0
  std::map<std::string, std::uint64_t>
      unattributed_calls;                                ///< reason -> count; every reason, also 0
  std::map<std::string, std::uint64_t> attach_failures;  ///< reason -> count; every reason, also 0
  AttachMethod method = AttachMethod::kNone;
  std::uint64_t full_scans = 0;
  std::uint64_t processes_seen = 0;
};

}  // namespace ingero::model
