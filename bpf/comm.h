/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Communicators: known by (process, handle), named by a hash of their unique id. */
#ifndef INGERO_COMM_H
#define INGERO_COMM_H

#include "frame.h"

#define MAX_RANKS (1 << 22)

static __always_inline void comm_key_of(struct comm_key *key, const struct thread_state *thread, u64 comm)
{
	key->comm = comm;
	key->process_start_ns = thread->process_start_ns;
	key->tgid = thread->tgid;
	key->exec_id = thread->exec_id;
}

static __noinline int send_comm_event(u32 kind, u64 comm, struct comm_info *info)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct comm_event *event = bpf_ringbuf_reserve(&lifecycle_events, sizeof(*event), 0);

	if (!event) {
		count_loss(LOSS_LIFECYCLE_RING_FULL);
		return 0;
	}
	fill_header(&event->header, kind, task);
	event->comm = comm;
	if (info)
		event->info = *info;
	else
		__builtin_memset(&event->info, 0, sizeof(event->info));
	bpf_ringbuf_submit(event, 0);
	return 0;
}

/* Rank and size out of struct ncclComm, where the library's layout is known; implausible values are not
 * believed. */
static __noinline int read_comm_ranks(struct comm_info *info, u64 comm)
{
	u32 library, pair[2] = {};
	struct comm_layout *layout;

	if (!info)
		return 0;
	library = info->library;
	layout = bpf_map_lookup_elem(&layouts, &library);
	if (!layout || !layout->rank_offset)
		return 0;
	if (bpf_probe_read_user(pair, sizeof(pair), (void *)(comm + layout->rank_offset)))
		return 0;
	if (pair[1] == 0 || pair[1] > MAX_RANKS || pair[0] >= pair[1])
		return 0;
	info->rank = pair[0];
	info->nranks = pair[1];
	return 1;
}

#endif
