// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/page.h"
#include "record/recording.h"

namespace ingero::record {

/// What a recording tells at a glance: slowest collectives per rank, late ranks, retransmits and waits in
/// their windows, copies, errors, losses, and what it cannot know. Each call is read once. The watch ends
/// it with an error whose cause is "interrupted".
Result<model::Page> make_report(const Recording& recording, const Watch& watch);

}  // namespace ingero::record
