// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace ingero::app {

/// `ingero check`: one screen, or JSON. Returns the exit status: 0 ok, 1 degraded, 2 cannot work.
int run_check(bool json);

}  // namespace ingero::app
