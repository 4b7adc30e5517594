/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* One call from entry to return. Only the outermost traced call of a thread counts; stack pointers tell
 * which call returns, so that nesting needs no depth counter that a longjmp could leave behind. */
#ifndef INGERO_FRAME_H
#define INGERO_FRAME_H

#include "account.h"

/* Whether an address is where the kernel makes probed functions return to. */
SHARED_FUNCTION int is_return_trampoline(u64 address)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct mm_struct *mm = task->mm;

	if (!mm || !mm->uprobes_state.xol_area)
		return 0;
	return mm->uprobes_state.xol_area->vaddr == address;
}

#define FIRST_RUNTIME_FUNCTION 100
#define FIRST_DRIVER_FUNCTION 300

/* Whether one function is known to call another: all that entry-only mode has against taking what an
 * earlier call left on the stack for a call that still runs. */
static __always_inline int is_known_to_call(u64 outer_cookie, u64 inner_cookie)
{
	u32 outer = API_COOKIE_ID(outer_cookie), inner = API_COOKIE_ID(inner_cookie);

	if (inner >= FIRST_DRIVER_FUNCTION)
		return outer >= FIRST_RUNTIME_FUNCTION && outer < FIRST_DRIVER_FUNCTION;
	return (outer == 4 && inner == 5) || /* ncclBcast, ncclBroadcast */
	       (outer == 43 && inner == 50) || /* ncclCommInitAll, ncclGetUniqueId */
	       (outer >= 144 && outer <= 147 && inner >= 108 && inner <= 123); /* array to array */
}

/* Whether the call of the frame still runs around this entry: by a call (the stack has grown) or by a tail
 * call (it has not). After a longjmp out of it the stack may have grown as well, so look whether the way
 * back through the return probe is still in place. */
static __always_inline int is_nested_in(user_regs_t *regs, const struct call_frame *frame,
					u64 cookie)
{
	u64 way_back;

	if (USER_SP(regs) > frame->sp)
		return 0;
	way_back = frame_return_address(regs, frame->sp);
	if (is_return_trampoline(way_back)) /* our return probe's, or another tracer's */
		return 1;
	return settings.entry_only && USER_SP(regs) < frame->sp &&
	       way_back == frame->return_address && is_known_to_call(frame->cookie, cookie);
}

SHARED_FUNCTION int thread_policy_copy(struct thread_state *thread, u64 cgroup_id)
{
	struct cgroup_policy *policy;

	if (!thread)
		return 0;
	/* Before the look-up: a change between the two is seen at the next call. */
	thread->policy_generation = settings.policy_generation;
	thread->cgroup_id = cgroup_id;
	policy = bpf_map_lookup_elem(&policies, &cgroup_id);
	if (policy) {
		thread->policy = *policy;
		return 0;
	}
	thread->policy.nccl_functions = settings.unclassified.nccl_functions;
	thread->policy.slow_call_ns = settings.unclassified.slow_call_ns;
	thread->policy.cuda = settings.unclassified.cuda;
	thread->policy.stream = settings.unclassified.stream;
	return 0;
}

/* Whether the policy of the thread's cgroup counts this function. */
static __always_inline int policy_counts(struct thread_state *thread, u64 cookie)
{
	struct task_struct *task = bpf_get_current_task_btf();
	u64 cgroup_id = task_cgroup_id(task);
	u32 function = API_COOKIE_ID(cookie);

	if (thread->policy_generation != settings.policy_generation ||
	    thread->cgroup_id != cgroup_id)
		thread_policy_copy(thread, cgroup_id);
	if (function >= FIRST_RUNTIME_FUNCTION)
		return thread->policy.cuda;
	return (thread->policy.nccl_functions >> (function & 63)) & 1;
}

#define FRAME_IF_COUNTED 0
#define FRAME_ALWAYS 1 /* what the call does is followed even where nothing counts */

/* Opens the frame of an outermost call; NULL: nested, or not to be counted. Where only other functions
 * count, the frame is opened muted, so that the calls inside it are not taken for the user's. */
static __always_inline struct call_frame *frame_open(user_regs_t *regs, struct thread_state *thread,
						     u64 cookie, int when)
{
	struct call_frame *frame = &thread->frame;
	u64 sp = USER_SP(regs);
	int counts;

	if (!thread->traced)
		return NULL;
	if (frame->sp) {
		if (is_nested_in(regs, frame, cookie))
			return NULL;
		if (!settings.entry_only) /* there every call was counted when it began */
			account_unfinished(thread);
	}
	counts = policy_counts(thread, cookie);
	if (!counts && when == FRAME_IF_COUNTED && !thread->policy.cuda &&
	    !thread->policy.nccl_functions) {
		frame->sp = 0;
		return NULL;
	}
	frame->muted = !counts;
	frame->streamed = counts && (settings.stream_calls || thread->policy.stream);
	frame->sp = sp;
	frame->cookie = cookie;
	frame->direction = 0;
	frame->size = 0;
	return frame;
}

/* Closes the frame of the call that returns; NULL: a nested call, or one that was never opened. */
static __always_inline struct call_frame *frame_close(user_regs_t *regs,
						      struct thread_state *thread)
{
	struct call_frame *frame = &thread->frame;

	if (!frame->sp || USER_SP(regs) != frame->sp + RETURN_SP_DELTA)
		return NULL;
	frame->sp = 0;
	return frame;
}

/* What a session program's entry half returns: 0 runs the return half, 1 leaves it out. */
#define FRAME_ENTERED 0
#define FRAME_SKIPPED 1

/* The last step of each entry half: start the clock, or, where return probes are off, count at once. */
static __always_inline int frame_start(user_regs_t *regs, struct thread_state *thread,
				       struct call_frame *frame)
{
	if (settings.entry_only) {
		frame->return_address = frame_return_address(regs, frame->sp);
		account_unfinished(thread);
		return FRAME_SKIPPED;
	}
	frame->start_ns = bpf_ktime_get_ns();
	return FRAME_ENTERED;
}

/* The return half of a session program runs with the instruction pointer behind the call, the entry half
 * on the function itself. (bpf_session_is_return() tells the same but has two prototypes, see
 * docs/adr/0001-session-without-kfuncs.md.) */
static __always_inline int session_is_return(user_regs_t *regs)
{
	return bpf_get_func_ip(regs) != USER_IP(regs);
}

/* From 6.13 (arm64: 6.17) the kernel gives functions of 64 bytes of stack and more a stack that belongs to
 * the processor. A program of a uprobe can be preempted there, and the next thread writes over it. A
 * program with a tail call in it is left on its thread's stack, even where the call can never be made; the
 * agent tries at start which kernels need it, and takes the instruction out for the others
 * (attach/thread_stack.h). A sleepable program can have no tail call: it must stay below 64 bytes. */
static const volatile u32 never;

static __always_inline void stay_on_thread_stack(user_regs_t *regs)
{
	if (never)
		bpf_tail_call(regs, &no_programs, 0);
}

/* Three programs of one pair of halves: attached as entry and return probe, or once as a session. */
#define CALL_PROGRAMS(name)                                                                        \
	SEC("uprobe") int name##_entry(user_regs_t *regs)                                          \
	{                                                                                          \
		stay_on_thread_stack(regs);                                                        \
		name##_enter(regs, bpf_get_attach_cookie(regs));                                   \
		return 0;                                                                          \
	}                                                                                          \
	SEC("uprobe") int name##_return(user_regs_t *regs)                                         \
	{                                                                                          \
		stay_on_thread_stack(regs);                                                        \
		name##_exit(regs);                                                                 \
		return 0;                                                                          \
	}                                                                                          \
	SEC("uprobe") int name##_session(user_regs_t *regs)                                        \
	{                                                                                          \
		stay_on_thread_stack(regs);                                                        \
		if (session_is_return(regs)) {                                                     \
			name##_exit(regs);                                                         \
			return 0;                                                                  \
		}                                                                                  \
		return name##_enter(regs, bpf_get_attach_cookie(regs));                            \
	}

/* `sequence`: the number that a collective took in its communicator; 0: none */
static __always_inline void send_call(struct task_struct *task, struct call_key *key,
				      struct thread_state *thread, struct call_frame *frame,
				      struct comm_info *comm, u64 sequence, u64 duration, u64 bytes,
				      s32 result, int failed)
{
	struct call_event *event;

	event = stream_reserve(sizeof(*event), LOSS_CALL_RING_FULL);
	if (!event)
		return;
	event->header.kind = EVENT_CALL;
	event->header.tid = task->pid;
	event->header.time_ns = frame->start_ns;
	event->header.process_start_ns = thread->process_start_ns;
	event->header.cgroup_id = key->cgroup_id;
	event->header.tgid = thread->tgid;
	event->header.exec_id = thread->exec_id;
	event->duration_ns = duration;
	event->comm = frame->comm;
	event->comm_id_hash = comm ? comm->id_hash : 0;
	event->stream = frame->stream;
	event->count = frame->count;
	event->bytes = bytes;
	event->sequence = sequence;
	event->rank = comm ? comm->rank : RANK_UNKNOWN;
	event->nranks = comm ? comm->nranks : 0;
	event->result = result;
	event->peer = frame->peer;
	event->redop = frame->redop;
	event->function = key->function;
	event->direction = frame->direction;
	event->datatype = frame->datatype;
	event->group_depth = thread->group_depth;
	event->failed = failed;
	bpf_ringbuf_submit(event, stream_wakeup());
}

#endif
