/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Communicators: known by (process, handle), named by a hash of their unique id. */
#ifndef INGERO_COMM_H
#define INGERO_COMM_H

#include "frame.h"

#define MAX_RANKS (1 << 22)
#define FUNCTION_SPLIT 44
/* For a child: its ranks stand in its memory, where its parent had those that the arguments told. */
#define NRANKS_IN_MEMORY 0xffffffff

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
	struct comm_event *event = lifecycle_reserve(sizeof(*event), task_cgroup_id(task));

	if (!event)
		return 0;
	fill_header(&event->header, kind, task);
	event->comm = comm;
	if (info)
		event->info = *info;
	else
		__builtin_memset(&event->info, 0, sizeof(event->info));
	bpf_ringbuf_submit(event, 0);
	return 0;
}

static __always_inline struct comm_layout *layout_of(u32 library, u64 cgroup)
{
	struct layout_key key = {.cgroup_id = cgroup, .library = library};
	struct comm_layout *layout = bpf_map_lookup_elem(&layouts, &key);

	if (layout)
		return layout;
	key.cgroup_id = 0;
	return bpf_map_lookup_elem(&layouts, &key);
}

static __always_inline u64 pack_ranks(u32 rank, u32 nranks)
{
	return ((u64)nranks << 32) | rank;
}

/* Rank and size as struct ncclComm shows them, packed; 0: where the layout has them, there is something
 * else. */
SHARED_FUNCTION u64 comm_memory_ranks(u32 library, u64 cgroup, u64 comm)
{
	struct comm_layout *layout = layout_of(library, cgroup);
	u32 words[4] = {}; /* commHash, rank, nRanks */

	if (!layout || layout->rank_offset < 8)
		return 0;
	if (bpf_probe_read_user(words, sizeof(words), (void *)(comm + layout->rank_offset - 8)))
		return 0;
	if (words[0] <= MAX_RANKS && words[1] <= MAX_RANKS) /* no hash is two small numbers */
		return 0;
	if (words[3] == 0 || words[3] > MAX_RANKS || words[2] >= words[3])
		return 0;
	return pack_ranks(words[2], words[3]);
}

/* Whether the first and the last word of the structure are where the layout has them: a build that was
 * changed has another size. */
SHARED_FUNCTION int comm_has_size(u32 library, u64 cgroup, u64 comm)
{
	struct comm_layout *layout = layout_of(library, cgroup);
	u64 first = 0, last = 0;

	if (!layout || !layout->end_magic_offset)
		return 0;
	bpf_probe_read_user(&first, sizeof(first), (void *)comm);
	bpf_probe_read_user(&last, sizeof(last), (void *)(comm + layout->end_magic_offset));
	return first == COMM_MAGIC && last == COMM_MAGIC;
}

static __always_inline void read_comm_ranks(struct comm_info *info, u64 comm)
{
	u64 ranks = comm_memory_ranks(info->library, info->cgroup_id, comm);

	if (!ranks)
		return;
	info->rank = (u32)ranks;
	info->nranks = ranks >> 32;
}

/* What a creating call has told, to a communicator that was in use before: at its own place, because other
 * threads are adding to its counts. */
static __always_inline void comm_adopt(struct comm_info *known, const struct comm_info *info)
{
	known->rank = info->rank;
	known->nranks = info->nranks;
	known->parent = info->parent;
	known->function = info->function;
	known->library = info->library;
	known->device = info->device;
	__builtin_memcpy(known->name, info->name, COMM_NAME_SIZE);
	known->id_hash = info->id_hash;
	known->created_ns = info->created_ns;
}

/* Makes a communicator known under the handle that the library has stored. */
SHARED_FUNCTION int comm_publish(struct thread_state *thread, struct pending_comm *from, u64 comm)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct comm_info info = {}, *known;
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
	info.device = from->device;
	__builtin_memcpy(info.name, from->name, COMM_NAME_SIZE);
	if (from->nranks == NRANKS_IN_MEMORY && info.function == FUNCTION_SPLIT)
		read_comm_ranks(&info, comm);
	comm_key_of(&key, thread, comm);
	known = bpf_map_lookup_elem(&comms, &key);
	if (!known) {
		if (SHARED_INSERT(&comms, &key, &info, info.cgroup_id, SHARED_COMMS,
				  LOSS_COMMS_MAP_FULL)) {
			send_comm_event(EVENT_COMM_CREATED, comm, &info);
			return 1;
		}
		known = bpf_map_lookup_elem(&comms, &key);
	}
	if (!known)
		return 0;
	if (!known->created_ns) /* another thread has used it already */
		comm_adopt(known, &info);
	else
		bpf_map_update_elem(&comms, &key, &info, BPF_ANY);
	send_comm_event(EVENT_COMM_CREATED, comm, &info);
	return 1;
}

static __always_inline u64 user_pointer(u64 address)
{
	u64 value = 0;

	bpf_probe_read_user(&value, sizeof(value), (void *)address);
	return value;
}

/* Takes a promise into the thread's scratch; of several threads that find it, the one that deletes it. */
SHARED_FUNCTION int promise_take(struct thread_state *thread, u64 owner, u64 slot)
{
	struct pending_key key = {.owner = owner, .slot = slot};
	struct pending_comm *comm = bpf_map_lookup_elem(&pending, &key);

	if (!thread || !comm)
		return 0;
	thread->scratch.pending = *comm;
	if (bpf_map_delete_elem(&pending, &key))
		return 0;
	share_give(thread->scratch.pending.cgroup_id, SHARED_PENDING);
	return 1;
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
		if (!promise_take(thread, key.owner, key.slot))
			return 0;
		return comm_publish(thread, &thread->scratch.pending, handle);
	}
	return 0;
}

#endif
