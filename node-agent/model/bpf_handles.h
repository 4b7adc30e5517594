// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace ingero::model {

/// Descriptors of the loaded BPF object's parts, borrowed from its owner (attach::BpfObject).
struct BpfHandles {
  int calls = -1;
  int call_slots = -1;
  int free_slots = -1;
  int folded_calls = -1;
  int errors = -1;
  int unscaled = -1;
  int processes = -1;
  int process_changes = -1;
  int comms = -1;
  int pending = -1;
  int streams = -1;
  int shares = -1;
  int shares_returned = -1;
  int layouts = -1;
  int traced_tgids = -1;
  int policies = -1;
  int retransmits = -1;
  int waits = -1;
  int known_files = -1;
  int traced_files = -1;
  int losses = -1;
  int lifecycle_events = -1;
  int call_rings = -1;  ///< array of one: the ring of streamed calls, while there is one
  int running_processes_program = -1;  ///< iter/task
  int mapped_files_program = -1;       ///< iter/task_vma
  int held_sockets_program =
      -1;  ///< iter/task_file; negative: nobody asked, or this kernel has none
};

}  // namespace ingero::model
