// SPDX-License-Identifier: Apache-2.0
#include "model/snapshot.h"

namespace ingero::model {

void CallTotals::add(const CallTotals& other) {
  calls += other.calls;
  errors += other.errors;
  bytes += other.bytes;
  duration_ns += other.duration_ns;
  unfinished += other.unfinished;
  barriers += other.barriers;
  slow += other.slow;
  for (std::size_t i = 0; i < sizes.size(); ++i) sizes[i] += other.sizes[i];
  for (std::size_t i = 0; i < durations.size(); ++i) durations[i] += other.durations[i];
}

std::string_view to_string(AttachMethod method) {
  switch (method) {
    case AttachMethod::kNone: return "none";
    case AttachMethod::kSession: return "session";
    case AttachMethod::kMulti: return "multi";
    case AttachMethod::kPerf: return "perf";
    case AttachMethod::kEntryOnly: return "entry_only";
  }
  return "none";
}

std::string_view to_string(LibraryKind kind) {
  switch (kind) {
    case LibraryKind::kNccl: return "nccl";
    case LibraryKind::kRccl: return "rccl";
    case LibraryKind::kCudart: return "cudart";
    case LibraryKind::kCuda: return "cuda";
    case LibraryKind::kOther: return "other";
  }
  return "other";
}

}  // namespace ingero::model
