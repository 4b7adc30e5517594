// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
#include "maps.h"

struct calls_map calls SEC(".maps");
struct folded_calls_map folded_calls SEC(".maps");
struct errors_map errors SEC(".maps");
struct unscaled_map unscaled SEC(".maps");
struct processes_map processes SEC(".maps");
struct comms_map comms SEC(".maps");
struct pending_map pending SEC(".maps");
struct streams_map streams SEC(".maps");
struct shares_map shares SEC(".maps");
struct shares_map shares_returned SEC(".maps");
struct layouts_map layouts SEC(".maps");
struct traced_tgids_map traced_tgids SEC(".maps");
struct policies_map policies SEC(".maps");
struct retransmits_map retransmits SEC(".maps");
struct retransmitted_map retransmitted SEC(".maps");
struct waits_map waits SEC(".maps");
struct process_changes_map process_changes SEC(".maps");
struct scheduled_threads_map scheduled_threads SEC(".maps");
struct known_files_map known_files SEC(".maps");
struct traced_files_map traced_files SEC(".maps");
struct losses_map losses SEC(".maps");
struct threads_map threads SEC(".maps");
struct spare_threads_map spare_threads SEC(".maps");
struct lifecycle_ring lifecycle_events SEC(".maps");
struct lifecycle_shares_map lifecycle_shares SEC(".maps");
struct call_rings_map call_rings SEC(".maps");
struct no_programs_map no_programs SEC(".maps");

volatile struct agent_settings settings SEC(".bss");
volatile unsigned int stream_sleeps SEC(".bss");
const volatile unsigned int may_read_kernel SEC(".rodata") = 1;

char LICENSE[] SEC("license") = "GPL";
