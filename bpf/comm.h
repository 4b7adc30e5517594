/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Communicators: known by (process, handle), named by a hash of their unique id. */
#ifndef INGERO_COMM_H
#define INGERO_COMM_H

#include "frame.h"

#define MAX_RANKS (1 << 22)

static __always_inline void comm_key_of(struct comm_key *key, const struct thread_state *thread,
					u64 comm)
{
	key->comm = comm;
	key->process_start_ns = thread->process_start_ns;
	key->tgid = thread->tgid;
	key->exec_id = thread->exec_id;
}

SHARED_FUNCTION int send_comm_event(u32 kind, u64 comm, struct comm_info *info)
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
SHARED_FUNCTION int read_comm_ranks(struct comm_info *info, u64 comm)
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

/* Makes a communicator known under the handle that the library has stored. */
SHARED_FUNCTION int comm_publish(struct thread_state *thread, struct pending_comm *from, u64 comm)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct comm_info info = {};
	struct comm_key key = {};

	if (!thread || !from || !comm)
		return 0;
	info.id_hash = from->id_hash;
	info.cgroup_id = task_cgroup_id(task);
	info.created_ns = bpf_ktime_get_ns();
	info.parent = from->parent;
	info.rank = from->rank;
	info.nranks = from->nranks <= MAX_RANKS ? from->nranks : 0;
	info.function = API_COOKIE_ID(from->cookie);
	info.library = COOKIE_LIBRARY(from->cookie);
	__builtin_memcpy(info.name, from->name, COMM_NAME_SIZE);
	if (!info.nranks)
		read_comm_ranks(&info, comm);
	comm_key_of(&key, thread, comm);
	if (bpf_map_update_elem(&comms, &key, &info, BPF_ANY)) {
		count_loss(LOSS_COMMS_MAP_FULL);
		return 0;
	}
	send_comm_event(EVENT_COMM_CREATED, comm, &info);
	return 1;
}

static __always_inline u64 user_pointer(u64 address)
{
	u64 value = 0;

	bpf_probe_read_user(&value, sizeof(value), (void *)address);
	return value;
}

/* The communicator that a non-blocking call has promised under this handle. */
SHARED_FUNCTION int comm_publish_async(struct thread_state *thread, u64 handle)
{
	struct pending_key key = {};
	struct pending_comm *comm;
	u32 i;

	if (!thread)
		return 0;
	for (i = 0; i < MAX_ASYNC_COMMS; i++) {
		async_key_of(&key, thread->process_start_ns, thread->tgid, thread->exec_id, i);
		comm = bpf_map_lookup_elem(&pending, &key);
		if (!comm || user_pointer(comm->out) != handle)
			continue;
		thread->scratch.pending = *comm;
		bpf_map_delete_elem(&pending, &key);
		return comm_publish(thread, &thread->scratch.pending, handle);
	}
	return 0;
}

#endif
