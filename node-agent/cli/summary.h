// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cli/container_name.h"
#include "model/snapshot.h"

namespace ingero::cli {

struct SummaryOptions {
  std::size_t width = 0;  ///< columns; 0: any number
  bool colour = false;
};

/// The end of a run: per container and operation the calls, errors, bytes and host durations since
/// the agent started, then what was lost, by reason ("lost: 0" when nothing was).
std::string render_summary(const model::Snapshot& snapshot, const ContainerLabel& container_of,
                           const SummaryOptions& options);

/// One counted operation, from the agent or from a workload's own tally.
struct TallyLine {
  std::string container;  ///< "" on both sides compares everything on the host as one
  std::string operation;  ///< label of the API: variants of a function are one operation
  std::string direction;  ///< h2d ...; "" for anything but copies
  std::uint64_t calls = 0;
  std::uint64_t errors = 0;
  std::uint64_t bytes = 0;
};

/// The agent's totals as tally lines.
std::vector<TallyLine> tally_of(const model::Snapshot& snapshot,
                                const ContainerLabel& container_of);

struct ComparedLine {
  TallyLine expected;  ///< container, operation and direction are set on both
  TallyLine counted;
  bool equal() const;
};

struct Comparison {
  std::vector<ComparedLine> lines;  ///< sorted by container, operation, direction
  bool equal() const;
};

/// Adds up the lines of one container, operation and direction on each side and sets them side by
/// side. What only one side has is compared with zero. Functions are taken as exported names or as
/// labels.
Comparison compare_tallies(const std::vector<TallyLine>& expected,
                           const std::vector<TallyLine>& counted);

/// One line each: what the workloads made, what the agent counted, "=" or the difference.
std::string render_comparison(const Comparison& comparison, const SummaryOptions& options);

}  // namespace ingero::cli
