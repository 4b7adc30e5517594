// SPDX-License-Identifier: Apache-2.0
// What the kernel and the agent tell, in the words of recordings.
#pragma once

#include <optional>

#include "app/agent.h"
#include "base/clock.h"
#include "bpf/wire.h"
#include "record/recorder.h"

namespace ingero::app {

/// A row of tcp_events. `owner`: of the socket; nullopt: not known.
record::TcpEvent tcp_row(const Clock& clock, const tcp_event& event,
                         std::optional<model::CgroupId> owner);
/// A row of sched_events.
record::SchedEvent wait_row(const Clock& clock, const wait_event& event);

/// Facts and names for a recording by this agent, which must outlive it.
record::RecorderOptions recorder_options(const Agent& agent);

}  // namespace ingero::app
