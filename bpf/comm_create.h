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
SHARED_FUNCTION u64 unique_id_hash(u64 address)
{
	u64 word, hash = 0;
	int i;

	for (i = 0; i < UNIQUE_ID_SIZE / 8; i++) {
		if (bpf_probe_read_user(&word, sizeof(word), (void *)(address + 8 * (u64)i))) {
			count_loss(LOSS_ARGUMENTS_UNREADABLE);
			return 0;
		}
		hash = splitmix64(hash ^ word);
	}
	return hash;
}

STATIC_FUNCTION int comm_remember(struct thread_state *thread, struct pending_comm *comm)
{
	struct pending_key key = {};

	if (!thread || !comm)
		return 0;
	key.owner = bpf_get_current_pid_tgid();
	key.slot = thread->pending_comms;
	if (key.slot >= MAX_PENDING_COMMS) {
		count_loss(LOSS_PENDING_COMMS_FULL);
		return 0;
	}
	if (!SHARED_INSERT(&pending, &key, comm, comm->cgroup_id, SHARED_PENDING,
			   LOSS_PENDING_COMMS_FULL))
		return 0;
	thread->pending_comms++;
	return 1;
}

/* A non-blocking call, in the thread's scratch: the library stores the handle in a thread of its own, some
 * time later. */
SHARED_FUNCTION int comm_remember_async(struct thread_state *thread)
{
	struct pending_key key = {};
	struct pending_comm comm;
	u32 i;

	if (!thread)
		return 0;
	for (i = 0; i < MAX_ASYNC_COMMS; i++) {
		async_key_of(&key, thread->process_start_ns, thread->tgid, thread->exec_id, i);
		if (!bpf_map_lookup_elem(&pending, &key))
			break;
	}
	if (i == MAX_ASYNC_COMMS) {
		count_loss(LOSS_PENDING_COMMS_FULL);
		return 0;
	}
	comm = thread->scratch.pending;
	thread->promises = 1;
	return SHARED_INSERT(&pending, &key, &comm, comm.cgroup_id, SHARED_PENDING,
			     LOSS_PENDING_COMMS_FULL);
}

/* Whether a value is a handle like another one: structures of one library begin alike. */
static __always_inline int is_handle_like(u64 value, u64 other)
{
	u64 first = 0, other_first = 0;

	return !bpf_probe_read_user(&first, sizeof(first), (void *)value) &&
	       !bpf_probe_read_user(&other_first, sizeof(other_first), (void *)other) &&
	       first == other_first;
}

/* The program asks whether its non-blocking calls are done: what they have stored by now is looked at, before
 * the variables that it was stored in go out of use. */
SHARED_FUNCTION int promises_look(struct thread_state *thread)
{
	struct pending_key key = {};
	struct pending_comm *comm;
	u32 i, left = 0;
	u64 handle;

	if (!thread || !thread->promises)
		return 0;
	for (i = 0; i < MAX_ASYNC_COMMS; i++) {
		async_key_of(&key, thread->process_start_ns, thread->tgid, thread->exec_id, i);
		comm = bpf_map_lookup_elem(&pending, &key);
		if (!comm)
			continue;
		handle = user_pointer(comm->out);
		if (!handle || handle == comm->out_before ||
		    !is_handle_like(handle, comm->parent)) {
			left = 1;
			continue;
		}
		if (promise_take(thread, key.owner, key.slot))
			comm_publish(thread, &thread->scratch.pending, handle);
	}
	thread->promises = left;
	return 0;
}

/* A creating call has returned. Inside a group the library may store the handle only at the group's end, and
 * a non-blocking one stores it later. */
static __always_inline void comm_created(struct thread_state *thread, struct pending_comm *comm,
					 int in_progress)
{
	u64 handle = user_pointer(comm->out);
	int stored = handle && (handle != comm->out_before || !in_progress);

	if (thread->group_depth) {
		if (handle && handle != comm->out_before)
			comm_publish(thread, comm, handle);
		else
			comm_remember(thread, comm);
		return;
	}
	if (stored)
		comm_publish(thread, comm, handle);
	else if (in_progress)
		comm_remember_async(thread);
}

/* The outermost group has ended: read the handles that were promised. Those that a non-blocking group has
 * not stored yet come later; those of a group that failed never come. */
SHARED_FUNCTION int comms_at_group_end(struct thread_state *thread, int in_progress)
{
	struct pending_key key = {};
	struct pending_comm *comm;
	u64 handle;
	u32 i;

	if (!thread)
		return 0;
	key.owner = bpf_get_current_pid_tgid();
	comm = &thread->scratch.pending;
	for (i = 0; i < MAX_PENDING_COMMS; i++) {
		if (i >= thread->pending_comms)
			break;
		key.slot = i;
		if (!promise_take(thread, key.owner, key.slot))
			continue;
		handle = user_pointer(comm->out);
		if (in_progress && (!handle || handle == comm->out_before))
			comm_remember_async(thread);
		else
			comm_publish(thread, comm, handle);
	}
	thread->pending_comms = 0;
	return 0;
}

#endif
