// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "export/operations.h"

namespace ingero::exporting {

/// Keeps the error labels a closed set, whatever numbers a process returns: the first 32 codes of
/// an operation keep their names for good (so that counters never move), the others are "other".
/// Not thread safe.
class ErrorNames {
 public:
  static constexpr std::size_t kMaxPerOperation = 32;

  struct Code {
    OperationIndex operation = 0;
    std::int32_t code = 0;
    auto operator<=>(const Code&) const = default;
  };

  /// Makes room for the failures among the codes of a snapshot; codes that have a name come before
  /// mere numbers.
  void admit(std::vector<Code> codes);

  /// The label of a code, "other" if it was not admitted.
  std::string name(const Code& code) const;

  /// Codes that found no room, each counted when it appears.
  std::uint64_t refused_total() const { return refused_total_; }

 private:
  std::map<OperationIndex, std::set<std::int32_t>> admitted_;
  std::size_t refused_now_ = 0;
  std::uint64_t refused_total_ = 0;
};

}  // namespace ingero::exporting
