// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
/* How long threads of traced processes were ready to run and did not, and how long they slept.
 *
 * Where the kernel counts the waits itself, one program takes its counts over when a thread leaves the
 * processor, and nothing is done when one is woken. The other programs see when a wait or a sleep began: they
 * are attached while a recording wants single ones, or where the kernel does not count. */
#include "account.h"

/* Bits of a task's state, as the kernel numbers them (include/linux/sched.h). */
#define TASK_INTERRUPTIBLE 0x0001
#define TASK_UNINTERRUPTIBLE 0x0002
#define TASK_STOPPED_OR_TRACED 0x000c
#define TASK_RTLOCK_WAIT 0x1000 /* a sleeping spin lock of PREEMPT_RT */

/* From 5.18 the tracepoint of a switch has a fourth argument. */
const volatile unsigned int switch_tells_state = 0;
/* The kernel keeps sched_info.run_delay. */
const volatile unsigned int kernel_counts_waits = 0;
/* Raised when scheduler_count() begins to see again. */
volatile unsigned int waits_generation SEC(".bss");
/* And when that was (CLOCK_BOOTTIME): threads that are younger have not waited before. */
volatile unsigned long long waits_since_ns SEC(".bss");

static __always_inline int is_traced_process(struct task_struct *task)
{
	struct process_key key = {};

	key.start_ns = task->group_leader->start_boottime;
	key.tgid = task->tgid;
	if (settings.only_listed_processes && !bpf_map_lookup_elem(&traced_tgids, &key.tgid))
		return 0;
	return bpf_map_lookup_elem(&processes, &key) != NULL;
}

/* What is remembered of a thread of a traced process; NULL: it is not one, or there is no room. What was
 * remembered before the programs were attached is forgotten: nobody saw what came after. */
static __always_inline struct scheduled_thread *thread_of(struct task_struct *task)
{
	struct scheduled_thread *thread;

	if (!is_traced_process(task))
		return NULL;
	thread = bpf_task_storage_get(&scheduled_threads, task, NULL,
				      BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!thread) {
		count_loss(LOSS_SCHEDULER_STATE);
		return NULL;
	}
	if (thread->generation != settings.scheduler_generation) {
		thread->queued_ns = 0;
		thread->blocked_ns = 0;
		thread->generation = settings.scheduler_generation;
	}
	return thread;
}

/* The task waits for a processor from now on. */
static __always_inline void queue_begin(struct task_struct *task)
{
	struct scheduled_thread *thread = thread_of(task);

	if (thread)
		thread->queued_ns = bpf_ktime_get_ns();
}

static __always_inline u32 sleep_state_of(u32 state)
{
	if (state & TASK_INTERRUPTIBLE)
		return SLEEP_INTERRUPTIBLE;
	if (state & (TASK_UNINTERRUPTIBLE | TASK_RTLOCK_WAIT))
		return SLEEP_UNINTERRUPTIBLE;
	return state & TASK_STOPPED_OR_TRACED ? SLEEP_STOPPED : SLEEP_UNKNOWN;
}

/* The task is off the processor by blocking from now on. */
static __always_inline void off_cpu_begin(struct task_struct *task, u32 state)
{
	struct scheduled_thread *thread = thread_of(task);

	if (!thread)
		return;
	thread->blocked_ns = bpf_ktime_get_ns();
	thread->sleep_state = sleep_state_of(state);
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

static __always_inline void send_wait(u32 kind, struct task_struct *task, u64 begin, u64 wait,
				      u32 sleep_state)
{
	struct wait_event *event = stream_reserve(sizeof(*event), LOSS_HOST_EVENT_RING_FULL);

	if (!event)
		return;
	fill_header(&event->header, kind, task);
	event->header.time_ns = begin;
	event->wait_ns = wait;
	event->cpu = bpf_get_smp_processor_id();
	event->sleep_state = sleep_state;
	bpf_ringbuf_submit(event, stream_wakeup());
}

static __always_inline void count_wait(struct task_struct *task, u64 wait)
{
	struct wait_key key = {};
	struct wait_stats *stats;

	key.cgroup_id = task_cgroup_id(task);
	key.process_start_ns = task->group_leader->start_boottime;
	key.tgid = task->tgid;
	stats = waits_of(&key);
	if (!stats)
		return;
	add_to(&stats->waits, 1);
	add_to(&stats->wait_ns, wait);
	add_to(&stats->durations[duration_bucket(wait) & (DURATION_BUCKETS - 1)], 1);
}

/* The task gets the processor: what it waited for, and what it slept, is over. */
static __always_inline void run_begin(struct task_struct *task)
{
	struct scheduled_thread *thread = bpf_task_storage_get(&scheduled_threads, task, NULL, 0);
	u64 queued, blocked, now;

	if (!thread || thread->generation != settings.scheduler_generation)
		return;
	queued = thread->queued_ns;
	blocked = thread->blocked_ns;
	thread->queued_ns = 0;
	thread->blocked_ns = 0;
	now = bpf_ktime_get_ns();
	if (blocked && settings.stream_off_cpu_ns && now - blocked >= settings.stream_off_cpu_ns)
		send_wait(EVENT_OFF_CPU, task, blocked, now - blocked, thread->sleep_state);
	if (!queued)
		return;
	if (!kernel_counts_waits)
		count_wait(task, now - queued);
	if (settings.stream_waits_ns && now - queued >= settings.stream_waits_ns)
		send_wait(EVENT_RUN_QUEUE_WAIT, task, queued, now - queued, SLEEP_UNKNOWN);
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

/* The state of the fourth argument is that of the decision to block: __state may be that of a wake-up by now,
 * and is that of a running task where a signal kept it from sleeping, whatever the argument says (6.1). */
SEC("tp_btf/sched_switch")
int scheduler_switch(u64 *ctx)
{
	int preempted = ctx[0] & 1;
	struct task_struct *previous = (void *)ctx[1];
	struct task_struct *next = (void *)ctx[2];
	u32 state = switch_tells_state ? (u32)ctx[3] : previous->__state;

	if (!previous->__state) /* preempted: ready to go on */
		queue_begin(previous);
	else if (settings.stream_off_cpu_ns && state && !preempted)
		off_cpu_begin(previous, state);
	run_begin(next);
	return 0;
}

/* ---- the kernel's own counts ------------------------------------------------------------------ */

#define NOTES 8192
/* What the last look into `processes` found for a process, so that most switches need none: its tgid above,
 * below how often the table had changed, and whether the process was in it. */
static volatile u64 notes[NOTES];

static __always_inline u64 process_changes_now(void)
{
	u32 programs = CHANGED_BY_PROGRAMS, agent = CHANGED_BY_AGENT;
	u64 *by_programs = bpf_map_lookup_elem(&process_changes, &programs);
	u64 *by_agent = bpf_map_lookup_elem(&process_changes, &agent);

	return by_programs && by_agent ? *by_programs + *by_agent : 0;
}

/* A thread that has been counted still is after its process was taken from the table, at its end. */
static __noinline int look_whether_traced(struct task_struct *task, u64 note, u32 tgid)
{
	int traced = is_traced_process(task);

	if (!traced && bpf_task_storage_get(&scheduled_threads, task, NULL, 0))
		return 1;
	notes[tgid & (NOTES - 1)] = note | traced;
	return traced;
}

static __always_inline int is_counted_thread(struct task_struct *task)
{
	u32 tgid = task->tgid;
	/* Before the look: what comes into the table between the two is found at the next switch. */
	u64 note = ((u64)tgid << 32) | (u32)(process_changes_now() << 1);
	u64 known = notes[tgid & (NOTES - 1)];

	if ((known & ~1ULL) == note)
		return known & 1;
	return look_whether_traced(task, note, tgid);
}

static __always_inline void take_waits(struct task_struct *task)
{
	struct scheduled_thread *thread = bpf_task_storage_get(&scheduled_threads, task, NULL,
							       BPF_LOCAL_STORAGE_GET_F_CREATE);
	u64 waits = task->sched_info.pcount, wait_ns = task->sched_info.run_delay;
	u64 new_waits, new_ns;
	int seen;

	if (!thread) {
		count_loss(LOSS_SCHEDULER_STATE);
		return;
	}
	seen = thread->waits_generation == waits_generation;
	new_waits = waits - thread->waits;
	new_ns = wait_ns - thread->wait_ns;
	thread->waits = waits;
	thread->wait_ns = wait_ns;
	if (!seen) {
		thread->waits_generation = waits_generation;
		if (waits != 1 || task->start_boottime < waits_since_ns)
			return; /* nobody knows when it waited */
		new_ns = wait_ns;
	}
	if (new_waits)
		count_wait(task, new_ns);
}

SEC("tp_btf/sched_switch")
int scheduler_count(u64 *ctx)
{
	struct task_struct *previous = (void *)ctx[1];

	if (kernel_counts_waits && previous->pid && is_counted_thread(previous))
		take_waits(previous);
	return 0;
}
