// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace ingero::exporting {

/// The `container`, `comm_id`, `result` or `error` of what has no series of its own.
inline constexpr const char* kOther = "other";

}  // namespace ingero::exporting
