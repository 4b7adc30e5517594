// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cli/host_facts.h"
#include "model/snapshot.h"

namespace ingero::cli {

/// What one attach method did on a function of the agent's own.
struct AttachMethodResult {
  std::string method;  ///< "session", "multi", "perf", "entry_only"
  bool works = false;
  std::string detail;  ///< why it does not; may be empty
};

/// What return probes did to a child under a strict seccomp filter.
enum class SeccompSafety { kNotTested, kSafe, kUnsafe };

/// What a start of the agent came to, with its real programs and choices.
struct StartResult {
  bool tried = false;
  std::string error;  ///< empty: it starts
  std::string hint;
};

/// What other stages found out; all of it may be missing.
struct CheckInput {
  HostFacts facts;
  std::vector<AttachMethodResult> methods;  ///< empty: not tried
  SeccompSafety seccomp = SeccompSafety::kNotTested;
  const model::Snapshot* snapshot = nullptr;  ///< processes and libraries; nullptr: not looked for
  StartResult start;
};

/// Ordered: the worst line is the report's verdict.
enum class Verdict { kOk, kDegraded, kBlocked };

/// "ok", "degraded", "blocked"
std::string_view to_string(Verdict verdict);

struct CheckLine {
  std::string name;   ///< fixed, such as "kernel" or "library"; a script may look for it
  std::string value;  ///< not escaped: may hold paths and process names
  Verdict verdict = Verdict::kOk;
  std::string hint;  ///< what to do about it, or what it means; may be empty
};

struct CheckReport {
  std::vector<CheckLine> lines;
  Verdict verdict() const;
  /// Of `ingero check`: 0 ok, 1 degraded, 2 cannot work here.
  int exit_status() const;
};

/// Judges the facts. A pure function: no file is read, nothing is tried.
CheckReport check_host(const CheckInput& input);

}  // namespace ingero::cli
