/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* How communicators come to be: unique ids, and handles that a library stores now or later. */
#ifndef INGERO_COMM_CREATE_H
#define INGERO_COMM_CREATE_H

#include "comm.h"

#define UNIQUE_ID_SIZE 128

static __always_inline u64 splitmix64(u64 x)
{
	x += 0x9e3779b97f4a7c15ULL;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
	return x ^ (x >> 31);
}

static __always_inline u64 hash_pair(u64 a, u64 b)
{
	return splitmix64(splitmix64(a) ^ b);
}

/* All 128 bytes folded, the same on every rank; 0 when they can't be read. */
static __noinline u64 unique_id_hash(u64 address)
{
	u64 words[UNIQUE_ID_SIZE / 8], hash = 0;
	int i;

	if (bpf_probe_read_user(words, sizeof(words), (void *)address)) {
		count_loss(LOSS_ARGUMENTS_UNREADABLE);
		return 0;
	}
	for (i = 0; i < UNIQUE_ID_SIZE / 8; i++)
		hash = splitmix64(hash ^ words[i]);
	return hash;
}

/* Makes a communicator known under the handle that the library has stored. */
static __noinline int comm_publish(struct thread_state *thread, struct pending_comm *from, u64 comm)
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
	info.nranks = from->nranks;
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

static __noinline int comm_remember(struct thread_state *thread, struct pending_comm *comm)
{
	struct pending_key key = {};

	if (!thread || !comm)
		return 0;
	key.owner = bpf_get_current_pid_tgid();
	key.slot = thread->pending_comms;
	if (key.slot >= MAX_PENDING_COMMS || bpf_map_update_elem(&pending, &key, comm, BPF_ANY)) {
		count_loss(LOSS_PENDING_COMMS_FULL);
		return 0;
	}
	thread->pending_comms++;
	return 1;
}

/* A creating call has returned. Inside a group the library may store the handle only at the group's end. */
static __always_inline void comm_created(struct thread_state *thread, struct pending_comm *comm)
{
	u64 handle = user_pointer(comm->out);

	if (thread->group_depth) {
		if (handle && handle != comm->out_before)
			comm_publish(thread, comm, handle);
		else
			comm_remember(thread, comm);
		return;
	}
	if (handle)
		comm_publish(thread, comm, handle);
}

/* The outermost group has ended: read the handles that were promised. */
static __noinline int comms_at_group_end(struct thread_state *thread)
{
	struct pending_key key = {};
	struct pending_comm *comm;
	struct pending_comm copy;
	u32 i;

	if (!thread)
		return 0;
	key.owner = bpf_get_current_pid_tgid();
	for (i = 0; i < MAX_PENDING_COMMS; i++) {
		if (i >= thread->pending_comms)
			break;
		key.slot = i;
		comm = bpf_map_lookup_elem(&pending, &key);
		if (!comm)
			continue;
		copy = *comm;
		bpf_map_delete_elem(&pending, &key);
		comm_publish(thread, &copy, user_pointer(copy.out));
	}
	thread->pending_comms = 0;
	return 0;
}

#endif
