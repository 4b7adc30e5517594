// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "export/operations.h"

namespace ingero::exporting {

/// The label of an error: its name, or "other" for those that found no room of their own.
std::string error_name(OperationIndex operation, std::int32_t code);

}  // namespace ingero::exporting
