// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
/* How long threads of traced processes were ready to run and did not. */
#include "account.h"

static __always_inline int is_traced_process(struct task_struct *task)
{
	struct process_key key = {};

	key.start_ns = task->group_leader->start_boottime;
	key.tgid = task->tgid;
	return bpf_map_lookup_elem(&processes, &key) != NULL;
}

/* The task waits for a processor from now on. */
static __always_inline void queue_begin(struct task_struct *task)
{
	struct scheduled_thread *thread;

	if (!is_traced_process(task))
		return;
	thread = bpf_task_storage_get(&scheduled_threads, task, NULL,
				      BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!thread) {
		count_loss(LOSS_SCHEDULER_STATE);
		return;
	}
	thread->queued_ns = bpf_ktime_get_ns();
}

static __always_inline struct wait_stats *waits_of(struct wait_key *key)
{
	static const struct wait_stats none;
	struct wait_stats *stats = bpf_map_lookup_elem(&waits, key);

	if (stats)
		return stats;
	bpf_map_update_elem(&waits, key, &none, BPF_NOEXIST);
	stats = bpf_map_lookup_elem(&waits, key);
	if (!stats)
		count_loss(LOSS_WAITS_MAP_FULL);
	return stats;
}

static __always_inline void send_wait(struct task_struct *task, u64 wait, u64 now)
{
	struct wait_event *event = stream_reserve(sizeof(*event));

	if (!event)
		return;
	fill_header(&event->header, EVENT_RUN_QUEUE_WAIT, task);
	event->header.time_ns = now - wait;
	event->wait_ns = wait;
	event->cpu = bpf_get_smp_processor_id();
	event->pad = 0;
	bpf_ringbuf_submit(event, 0);
}

static __always_inline void queue_end(struct task_struct *task)
{
	struct scheduled_thread *thread = bpf_task_storage_get(&scheduled_threads, task, NULL, 0);
	struct wait_key key = {};
	struct wait_stats *stats;
	u64 now, wait;

	if (!thread || !thread->queued_ns)
		return;
	now = bpf_ktime_get_ns();
	wait = now - thread->queued_ns;
	thread->queued_ns = 0;
	key.cgroup_id = task_cgroup_id(task);
	key.process_start_ns = task->group_leader->start_boottime;
	key.tgid = task->tgid;
	stats = waits_of(&key);
	if (stats) {
		add_to(&stats->waits, 1);
		add_to(&stats->wait_ns, wait);
		add_to(&stats->durations[duration_bucket(wait) & (DURATION_BUCKETS - 1)], 1);
	}
	if (settings.stream_waits_ns && wait >= settings.stream_waits_ns)
		send_wait(task, wait, now);
}

SEC("tp_btf/sched_wakeup")
int scheduler_wakeup(u64 *ctx)
{
	queue_begin((struct task_struct *)ctx[0]);
	return 0;
}

SEC("tp_btf/sched_wakeup_new")
int scheduler_wakeup_new(u64 *ctx)
{
	queue_begin((struct task_struct *)ctx[0]);
	return 0;
}

SEC("tp_btf/sched_switch")
int scheduler_switch(u64 *ctx)
{
	struct task_struct *previous = (void *)ctx[1];
	struct task_struct *next = (void *)ctx[2];

	if (!previous->__state) /* preempted: ready to go on */
		queue_begin(previous);
	queue_end(next);
	return 0;
}
