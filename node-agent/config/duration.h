// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/duration.h"

namespace ingero::config {

using ingero::format_duration;
using ingero::parse_duration;

}  // namespace ingero::config
