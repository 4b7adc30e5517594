// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/identity.h"

namespace ingero::app {

/// Whether the very process is alive: pid and start time (to the 10 ms of /proc/PID/stat).
bool is_alive(const model::ProcessKey& process);

}  // namespace ingero::app
