/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* One call from entry to return. Only the outermost traced call of a thread counts, and what it does not
 * make itself (nesting.h); stack pointers tell which call returns, so that nesting needs no depth counter
 * that a longjmp could leave behind. */
#ifndef INGERO_FRAME_H
#define INGERO_FRAME_H

#include "nesting.h"

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
						     u64 cookie, enum frame_family family, int when)
{
	struct call_frame *frame = &thread->frame;
	u64 sp = USER_SP(regs);
	int counts, relation;

	if (!thread->traced)
		return NULL;
	if (frame->sp || thread->outer[0].sp || thread->outer[1].sp) {
		relation = frame_settle(regs, thread, cookie);
		if (relation == FRAME_AROUND)
			return NULL;
		if (relation == FRAME_ELSEWHERE)
			frame = &thread->elsewhere;
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
	frame->family = family;
	frame->direction = 0;
	frame->size = 0;
	return frame;
}

/* A call that was set aside returns: those that began beside it were left. */
SHARED_FUNCTION int frame_bring_back(struct thread_state *thread, u64 sp)
{
	int i;

	if (!thread || (thread->outer[0].sp != sp && thread->outer[1].sp != sp))
		return 0;
	for (i = 0; i < OUTER_FRAMES && thread->frame.sp != sp; i++) {
		if (thread->frame.sp)
			account_unfinished(thread, &thread->frame, LOSS_UNFINISHED_CALL);
		thread->frame.sp = 0;
		frame_take_back(thread);
	}
	return 0;
}

/* Closes the frame of the call that returns; NULL: a nested call, or one that was never opened. */
static __always_inline struct call_frame *
frame_close(user_regs_t *regs, struct thread_state *thread, enum frame_family family)
{
	u64 sp = USER_SP(regs) - RETURN_SP_DELTA;
	struct call_frame *frame = &thread->frame;

	if (frame->sp != sp)
		frame_bring_back(thread, sp);
	if (frame->sp != sp || frame->family != family)
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
	if (frame == &thread->elsewhere) {
		account_unfinished(thread, frame, LOSS_OTHER_STACK);
		frame->sp = 0;
		return FRAME_SKIPPED;
	}
	if (settings.entry_only) {
		frame->return_address = return_address(regs);
		account_unfinished(thread, frame, LOSS_RESULT_UNKNOWN);
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
	event->group = thread->groups;
	event->failed = failed;
	bpf_ringbuf_submit(event, stream_wakeup());
}

#endif
