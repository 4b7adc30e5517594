/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Who is calling: process, cgroup, per-thread state. Kernel structures are read by typed loads from BTF
 * pointers: the same cost as helpers, and allowed under lockdown=confidentiality. */
#ifndef INGERO_TASK_H
#define INGERO_TASK_H

#include "arch.h"
#include "rings.h"

#include <bpf/bpf_core_read.h>

#define E2BIG 7

/* The cgroup at index `controller` of the task's css_set (cgroup v1). */
#define TASK_CONTROLLER_CGROUP_ID(task, controller)                                                \
	({                                                                                         \
		struct css_set *_set = (task)->cgroups;                                            \
		struct cgroup_subsys_state **_css =                                                \
			(void *)&_set->subsys[0] +                                                 \
			8 * bpf_core_enum_value(enum cgroup_subsys_id, controller);                \
		(*_css)->cgroup->kn->id;                                                           \
	})

/* kernfs id of the cgroup that names the task's container. */
static __always_inline u64 task_cgroup_id(struct task_struct *task)
{
	u32 source = settings.cgroup_source;

	if (source == CGROUP_V1_MEMORY &&
	    bpf_core_enum_value_exists(enum cgroup_subsys_id, memory_cgrp_id))
		return TASK_CONTROLLER_CGROUP_ID(task, memory_cgrp_id);
	if (source == CGROUP_V1_PIDS &&
	    bpf_core_enum_value_exists(enum cgroup_subsys_id, pids_cgrp_id))
		return TASK_CONTROLLER_CGROUP_ID(task, pids_cgrp_id);
	return task->cgroups->dfl_cgrp->kn->id;
}

static __always_inline struct kernfs_node *task_cgroup_node(struct task_struct *task)
{
	u32 source = settings.cgroup_source;

	if (source == CGROUP_V1_MEMORY &&
	    bpf_core_enum_value_exists(enum cgroup_subsys_id, memory_cgrp_id)) {
		struct css_set *set = task->cgroups;
		struct cgroup_subsys_state **css =
			(void *)&set->subsys[0] +
			8 * bpf_core_enum_value(enum cgroup_subsys_id, memory_cgrp_id);
		return (*css)->cgroup->kn;
	}
	if (source == CGROUP_V1_PIDS &&
	    bpf_core_enum_value_exists(enum cgroup_subsys_id, pids_cgrp_id)) {
		struct css_set *set = task->cgroups;
		struct cgroup_subsys_state **css =
			(void *)&set->subsys[0] +
			8 * bpf_core_enum_value(enum cgroup_subsys_id, pids_cgrp_id);
		return (*css)->cgroup->kn;
	}
	return task->cgroups->dfl_cgrp->kn;
}

static __always_inline struct kernfs_node *parent_node(struct kernfs_node *node)
{
	struct kernfs_node___rcu_parent *renamed = (void *)node;

	if (bpf_core_field_exists(renamed->__parent))
		return renamed->__parent;
	return node->parent;
}

static __always_inline void fill_header(struct event_header *header, u32 kind,
					struct task_struct *task)
{
	header->kind = kind;
	header->tid = task->pid;
	header->time_ns = bpf_ktime_get_ns();
	header->process_start_ns = task->group_leader->start_boottime;
	header->cgroup_id = task_cgroup_id(task);
	header->tgid = task->tgid;
	header->exec_id = task->self_exec_id;
}

/* The names on the way from a cgroup to the root, which has none. */
static __always_inline void fill_cgroup_path(struct process_seen_event *event,
					     struct kernfs_node *node)
{
	u64 used = 0; /* 64 bits: older verifiers lose the bound of a compare in 32 */
	long size;
	int i;

	event->path_whole = 0;
	event->path_size = 0;
	if (!may_read_kernel)
		return;
	for (i = 0; i < CGROUP_PATH_DEPTH; i++) {
		struct kernfs_node *parent;

		if (!node)
			break;
		parent = parent_node(node);
		if (!parent) {
			event->path_whole = 1;
			break;
		}
		if (used > CGROUP_PATH_SIZE - CGROUP_NAME_SIZE)
			break;
		size = bpf_probe_read_kernel_str(event->names + used, CGROUP_NAME_SIZE, node->name);
		if (size <= 0 || size > CGROUP_NAME_SIZE)
			break;
		used += size;
		node = parent;
	}
	event->path_size = used;
}

static __always_inline void send_process_seen(struct task_struct *task)
{
	struct process_seen_event *event;

	event = lifecycle_reserve(sizeof(*event), task_cgroup_id(task));
	if (!event)
		return;
	fill_header(&event->header, EVENT_PROCESS_SEEN, task);
	bpf_get_current_comm(event->comm, sizeof(event->comm));
	fill_cgroup_path(event, task_cgroup_node(task));
	bpf_ringbuf_submit(event, 0);
}

/* To be called after `processes` has changed. */
static __always_inline void processes_changed(void)
{
	u32 by = CHANGED_BY_PROGRAMS;
	u64 *changes = bpf_map_lookup_elem(&process_changes, &by);

	if (changes)
		__sync_fetch_and_add(changes, 1);
}

/* First call of a thread: who it is, and whether its process counts. */
SHARED_FUNCTION int thread_begin(struct thread_state *thread)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct process_key key = {};
	u64 cgroup_id = task_cgroup_id(task), *known;
	u32 tgid = task->tgid;
	long code;

	if (!thread)
		return 0;
	thread->process_start_ns = task->group_leader->start_boottime;
	thread->tgid = tgid;
	thread->exec_id = task->self_exec_id;
	thread->traced = 1;
	if (settings.only_listed_processes)
		thread->traced = bpf_map_lookup_elem(&traced_tgids, &tgid) != NULL;
	if (!thread->traced)
		return 0;
	key.start_ns = thread->process_start_ns;
	key.tgid = tgid;
	known = bpf_map_lookup_elem(&processes, &key);
	if (known && *known)
		return 0; /* another of its threads was here first */
	if (known) {
		*known = cgroup_id; /* the agent saw its mappings before its first call */
	} else {
		code = bpf_map_update_elem(&processes, &key, &cgroup_id, BPF_NOEXIST);
		if (!code)
			processes_changed();
		else if (code == -E2BIG)
			count_loss(LOSS_PROCESSES_MAP_FULL);
	}
	send_process_seen(task);
	return 0;
}

STATIC_FUNCTION struct thread_state *thread_create(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	u64 id = bpf_get_current_pid_tgid();
	struct thread_state *thread;

	thread = bpf_map_lookup_elem(&spare_threads, &id);
	if (thread)
		return thread;
	thread = bpf_task_storage_get(&threads, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!thread) {
		static const struct thread_state empty;

		bpf_map_update_elem(&spare_threads, &id, &empty, BPF_NOEXIST);
		thread = bpf_map_lookup_elem(&spare_threads, &id);
	}
	if (!thread) {
		count_loss(LOSS_THREAD_STATE);
		return NULL;
	}
	if (!thread->tgid)
		thread_begin(thread);
	return thread;
}

/* State of the calling thread at a call's entry. */
static __always_inline struct thread_state *thread_at_entry(struct task_struct *task)
{
	struct thread_state *thread = bpf_task_storage_get(&threads, task, NULL, 0);

	return thread ? thread : thread_create();
}

/* State of the calling thread at a call's return: NULL when it was never in a traced call. */
static __always_inline struct thread_state *thread_at_return(struct task_struct *task)
{
	struct thread_state *thread = bpf_task_storage_get(&threads, task, NULL, 0);
	u64 id;

	if (thread)
		return thread;
	id = bpf_get_current_pid_tgid();
	return bpf_map_lookup_elem(&spare_threads, &id);
}

#endif
