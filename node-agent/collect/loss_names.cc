// SPDX-License-Identifier: Apache-2.0
#include "collect/loss_names.h"

namespace ingero::collect {

const std::array<LossName, LOSS_REASONS>& loss_names() {
  static constexpr auto kNames = std::to_array<LossName>({
      {LOSS_CALL_RING_FULL, "call_stream_full", true},
      {LOSS_LIFECYCLE_RING_FULL, "lifecycle_ring_full", true},
      {LOSS_CALLS_MAP_FULL, "calls_map_full", true},
      {LOSS_PROCESS_FOLDED, "process_folded", false},
      {LOSS_ERRORS_MAP_FULL, "errors_map_full", true},
      {LOSS_COMMS_MAP_FULL, "communicators_map_full", true},
      {LOSS_THREAD_STATE, "thread_state", true},
      {LOSS_UNFINISHED_CALL, "no_return_seen", false},
      {LOSS_ARGUMENTS_UNREADABLE, "arguments_unreadable", false},
      {LOSS_FORGED_SIZE, "forged_size", false},
      {LOSS_UNKNOWN_DATATYPE, "unknown_datatype", false},
      {LOSS_UNKNOWN_ELEMENT_SIZE, "unknown_element_size", false},
      {LOSS_UNKNOWN_COMMUNICATOR, "unknown_communicator", false},
      {LOSS_PENDING_COMMS_FULL, "pending_communicators_full", true},
      {LOSS_PROCESSES_MAP_FULL, "processes_map_full", true},
      {LOSS_UNSCALED_MAP_FULL, "unscaled_map_full", true},
      {LOSS_STREAMS_MAP_FULL, "streams_map_full", true},
      {LOSS_RESULT_UNKNOWN, "result_unknown", false},
      {LOSS_RETRANSMITS_MAP_FULL, "retransmits_map_full", true},
      {LOSS_SCHEDULER_STATE, "scheduler_state", true},
      {LOSS_WAITS_MAP_FULL, "waits_map_full", true},
      {LOSS_HOST_EVENT_RING_FULL, "host_event_stream_full", true},
      {LOSS_OTHER_STACK, "other_stack", false},
      {LOSS_NESTING_UNKNOWN, "nesting_unknown", false},
      {LOSS_BATCH_TOO_LONG, "batch_too_long", false},
      {LOSS_CALLS_SHARE, "calls_share_full", true},
      {LOSS_ERRORS_SHARE, "errors_share_full", true},
      {LOSS_COMMS_SHARE, "communicators_share_full", true},
      {LOSS_UNSCALED_SHARE, "unscaled_share_full", true},
      {LOSS_STREAMS_SHARE, "streams_share_full", true},
      {LOSS_PENDING_SHARE, "pending_communicators_share_full", true},
  });
  static_assert(kNames.size() == LOSS_REASONS);
  return kNames;
}

}  // namespace ingero::collect
