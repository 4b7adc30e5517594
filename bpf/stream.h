/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Streams, and the last collective on each that nobody has waited for. */
#ifndef INGERO_STREAM_H
#define INGERO_STREAM_H

#include "account.h"

/* The default streams have the same handles on every device and in every thread. `per_thread`: what 0 means
 * to the function that was called. */
static __always_inline void stream_key_of(struct stream_key *key, const struct thread_state *thread,
					  u64 stream, u32 device, int per_thread)
{
	if (!stream)
		stream = per_thread ? STREAM_PER_THREAD : STREAM_LEGACY;
	key->stream = stream;
	key->process_start_ns = thread->process_start_ns;
	key->tgid = thread->tgid;
	key->exec_id = thread->exec_id;
	if (stream > STREAM_PER_THREAD)
		return;
	key->device = device;
	if (stream == STREAM_PER_THREAD)
		key->tid = bpf_get_current_pid_tgid();
}

/* The entry is replaced as a whole: another thread that waits for the stream may delete it meanwhile, and
 * its memory is another stream's then. */
static __always_inline void mark_stream(struct stream_key *key, struct call_key *call)
{
	struct stream_state state = {};

	state.call = *call;
	if (!bpf_map_lookup_elem(&streams, key) &&
	    SHARED_INSERT(&streams, key, &state, call->cgroup_id, SHARED_STREAMS,
			  LOSS_STREAMS_MAP_FULL))
		return;
	bpf_map_update_elem(&streams, key, &state, BPF_EXIST);
}

/* The host has waited for a stream. Of several threads that do, the one that deletes the entry counts. */
static __always_inline void count_barrier(struct stream_key *key)
{
	struct stream_state *state = bpf_map_lookup_elem(&streams, key);
	struct call_stats *stats;
	struct call_key call;

	if (!state)
		return;
	call = state->call;
	if (bpf_map_delete_elem(&streams, key))
		return;
	share_give(call.cgroup_id, SHARED_STREAMS);
	stats = stats_of(&call);
	if (stats)
		add_to(&stats->barriers, 1);
}

#endif
