// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace ingero {

// UTC times as Kubernetes objects have them, from nanoseconds since 1970.

/// "2026-01-31T12:00:00Z".
std::string format_timestamp(std::uint64_t unix_ns);
/// "2026-01-31T12:00:00.123456Z", a MicroTime.
std::string format_micro_timestamp(std::uint64_t unix_ns);

}  // namespace ingero
