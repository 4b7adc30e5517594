// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "bpf/wire.h"

namespace ingero::collect {

/// What each counter of the BPF side means to a user: an event that is lost, or a call that is counted
/// without something. Counters whose text is empty belong to neither.
struct LossName {
  loss_reason reason;
  const char* name;
  bool event;  ///< lost as a whole, not just counted with less
};

/// One for each reason.
const std::array<LossName, LOSS_REASONS>& loss_names();

}  // namespace ingero::collect
