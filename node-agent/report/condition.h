// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace ingero::report {

enum class ConditionStatus { yes, no, unknown };

/// One aspect of an object's state, as Kubernetes conditions have it.
struct Condition {
  ConditionStatus status = ConditionStatus::unknown;
  std::string reason;   ///< one word, letters and digits
  std::string message;  ///< a sentence
  std::optional<std::int64_t> observed_generation;
};

/// The `conditions` of a status: the one of type Ready. Its lastTransitionTime is that of
/// `status_before`, which may hold anything, unless the status has changed since.
nlohmann::json make_ready_conditions(const Condition& ready, const nlohmann::json& status_before,
                                     std::uint64_t now_unix_ns);

}  // namespace ingero::report
