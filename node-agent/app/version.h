// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace ingero::app {

extern const char* const kVersion;
extern const char* const kRevision;  ///< git commit, or "unknown"

}  // namespace ingero::app
