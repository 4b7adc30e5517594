// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
/* Ends and rebirths of traced processes. */
#include "account.h"

#include <bpf/bpf_tracing.h>

static __always_inline void send_process_event(u32 kind, struct task_struct *task)
{
	struct process_event *event = lifecycle_reserve(sizeof(*event), task_cgroup_id(task));

	if (!event)
		return;
	fill_header(&event->header, kind, task);
	bpf_get_current_comm(event->comm, sizeof(event->comm));
	bpf_ringbuf_submit(event, 0);
}

/* Returns whether the process is one that is traced. */
static __always_inline int process_is_known(struct task_struct *task)
{
	struct process_key key = {};

	key.start_ns = task->group_leader->start_boottime;
	key.tgid = task->tgid;
	return bpf_map_lookup_elem(&processes, &key) != NULL;
}

static __always_inline void forget_promise(struct pending_key *key)
{
	struct pending_comm *comm = bpf_map_lookup_elem(&pending, key);
	u64 cgroup_id;

	if (!comm)
		return;
	cgroup_id = comm->cgroup_id;
	if (!bpf_map_delete_elem(&pending, key))
		share_give(cgroup_id, SHARED_PENDING);
}

/* What a thread leaves behind: a call that will not return (it counts as one), and communicators that a
 * group had promised. */
static __noinline int end_thread(struct task_struct *task)
{
	struct pending_key key = {.owner = bpf_get_current_pid_tgid()};
	struct thread_state *thread = bpf_task_storage_get(&threads, task, NULL, 0);
	u32 i;

	if (!thread)
		return 0;
	for (i = 0; i < OUTER_FRAMES + 1; i++) {
		if (!thread->frame.sp && !frame_take_back(thread))
			break;
		if (!settings.entry_only)
			account_unfinished(thread, &thread->frame, LOSS_UNFINISHED_CALL);
		thread->frame.sp = 0;
	}
	for (i = 0; i < MAX_PENDING_COMMS; i++) {
		if (i >= thread->pending_comms)
			break;
		key.slot = i;
		forget_promise(&key);
	}
	return 0;
}

/* Communicators that were promised and never used. */
static __always_inline void forget_async(struct task_struct *task)
{
	struct pending_key key = {};
	u32 i;

	for (i = 0; i < MAX_ASYNC_COMMS; i++) {
		async_key_of(&key, task->group_leader->start_boottime, task->tgid,
			     task->self_exec_id, i);
		forget_promise(&key);
	}
}

SEC("tp_btf/sched_process_exit")
int process_exit(u64 *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	u64 id = bpf_get_current_pid_tgid();
	struct process_key key = {};

	end_thread(task);
	bpf_map_delete_elem(&spare_threads, &id);
	if (task->signal->live.counter > 0)
		return 0; /* other threads live on */
	key.start_ns = task->group_leader->start_boottime;
	key.tgid = task->tgid;
	if (bpf_map_delete_elem(&processes, &key))
		return 0;
	processes_changed(); /* the next process with this number is another one */
	forget_async(task);
	send_process_event(EVENT_PROCESS_EXIT, task);
	return 0;
}

/* A new program in an old process: no call of the old image will return, no communicator lives on. */
SEC("tp_btf/sched_process_exec")
int process_exec(u64 *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	u64 id = bpf_get_current_pid_tgid();

	end_thread(task);
	bpf_task_storage_delete(&threads, task);
	bpf_map_delete_elem(&spare_threads, &id);
	if (process_is_known(task))
		send_process_event(EVENT_PROCESS_EXEC, task);
	return 0;
}
