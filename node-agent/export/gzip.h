// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace ingero::exporting {

/// The text as a gzip member.
Result<std::string> gzip(std::string_view text);

}  // namespace ingero::exporting
