/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Whether a call that begins belongs to the one that is open. It does when code of a traced file makes it.
 * Anything else calls for itself: a signal handler, a coroutine, code behind a longjmp. */
#ifndef INGERO_NESTING_H
#define INGERO_NESTING_H

#include "way_back.h"

/* How the call that begins stands to the open one. */
enum frame_relation {
	FRAME_LEFT, /* the open call was left without returning */
	FRAME_AROUND, /* the new one is a part of it */
	FRAME_BESIDE, /* the new one is not a part of it, and ends before it */
	/* Another stack: which of the two ends first is not known. A return probe would end the program:
	 * the kernel forgets the returns that it takes for left, by the stack pointer alone. */
	FRAME_ELSEWHERE,
};

/* No stack is so small that one this near above another call's is not the same: that call was left. */
#define NEAR_ABOVE 2048
/* A signal handler's on the same stack, where mappings cannot be looked at. */
#define NEAR_BELOW 8192

#define FIRST_RUNTIME_FUNCTION 100
#define FIRST_DRIVER_FUNCTION 300

/* Whether one function is known to call another: all that there is where the caller cannot be told, and
 * what entry-only mode has against taking what an earlier call left on the stack for one that runs. */
static __always_inline int is_known_to_call(u64 outer_cookie, u64 inner_cookie)
{
	u32 outer = API_COOKIE_ID(outer_cookie), inner = API_COOKIE_ID(inner_cookie);

	if (inner >= FIRST_DRIVER_FUNCTION)
		return outer >= FIRST_RUNTIME_FUNCTION && outer < FIRST_DRIVER_FUNCTION;
	return (outer == 4 && inner == 5) || /* ncclBcast, ncclBroadcast */
	       (outer == 43 && inner == 50) || /* ncclCommInitAll, ncclGetUniqueId */
	       (outer >= 144 && outer <= 147 && inner >= 108 && inner <= 123); /* array to array */
}

#define CALLER_UNKNOWN 0
#define CALLER_LIBRARY 1 /* code of a traced file */
#define CALLER_OTHER 2

#define ENOENT 2

SHARED_FUNCTION int caller_at(struct thread_state *thread, u64 address)
{
	struct task_struct *task = bpf_get_current_task_btf();
	u32 generation = settings.files_generation;
	struct mapping_found found = {};
	long code;

	if (!thread)
		return CALLER_UNKNOWN;
	if (thread->library_generation == generation &&
	    address - thread->library_start < thread->library_size)
		return CALLER_LIBRARY;
	if (!CAN_FIND_VMA)
		return CALLER_UNKNOWN;
	code = bpf_find_vma(task, address, mapping_look, &found, 0);
	if (code && code != -ENOENT) /* another thread changes the mappings at this moment */
		return CALLER_UNKNOWN;
	if (!found.traced)
		return CALLER_OTHER;
	thread->library_start = found.start;
	thread->library_size = found.end - found.start;
	thread->library_generation = generation;
	return CALLER_LIBRARY;
}

/* Entry-only mode has no way back to look at, and can harm nobody: every call was counted at its entry. */
static __always_inline int relation_by_table(user_regs_t *regs, struct thread_state *thread,
					     u64 cookie)
{
	struct call_frame *frame = &thread->frame;

	if (USER_SP(regs) >= frame->sp || !way_back_lies(regs, thread, frame->return_address) ||
	    !is_known_to_call(frame->cookie, cookie) ||
	    caller_at(thread, return_address(regs)) == CALLER_OTHER)
		return FRAME_LEFT;
	return FRAME_AROUND;
}

/* After a longjmp out of the open call the way back through the return probe may still lie in its stack
 * slot, so neither that nor the stack pointer proves that it runs. */
STATIC_FUNCTION int frame_relation(user_regs_t *regs, struct thread_state *thread, u64 cookie)
{
	struct call_frame *frame;
	u64 sp = USER_SP(regs), trampoline = return_trampoline(), caller;

	if (!thread)
		return FRAME_LEFT;
	frame = &thread->frame;
	/* our return probe's, or another tracer's */
	if (!trampoline || !way_back_lies(regs, thread, trampoline))
		return settings.entry_only ? relation_by_table(regs, thread, cookie) : FRAME_LEFT;
	if (sp > frame->sp && sp - frame->sp < NEAR_ABOVE && !signal_stack_parts(sp, frame->sp))
		return FRAME_LEFT;
	caller = return_address(regs);
	if (caller == trampoline) /* a tail call, out of the open one or of a part of it */
		return FRAME_AROUND;
	switch (caller_at(thread, caller)) {
	case CALLER_LIBRARY: return FRAME_AROUND;
	case CALLER_UNKNOWN:
		if (sp > frame->sp)
			return FRAME_ELSEWHERE;
		if (!is_known_to_call(frame->cookie, cookie))
			count_loss(LOSS_NESTING_UNKNOWN);
		return FRAME_AROUND;
	}
	if (sp > frame->sp || signal_stack_parts(sp, frame->sp))
		return FRAME_ELSEWHERE;
	if (frame->sp - sp < NEAR_BELOW || is_thread_stack(sp, frame->sp))
		return FRAME_BESIDE;
	return FRAME_ELSEWHERE;
}

/* Makes room for a call beside the open one. Those that find no room are the oldest: most likely left. */
SHARED_FUNCTION int frame_set_aside(struct thread_state *thread)
{
	if (!thread)
		return 0;
	if (thread->outer[1].sp) {
		if (thread->outer[0].sp)
			account_unfinished(thread, &thread->outer[0], LOSS_UNFINISHED_CALL);
		thread->outer[0] = thread->outer[1];
	} else if (!thread->outer[0].sp) {
		thread->outer[0] = thread->frame;
		return 0;
	}
	thread->outer[1] = thread->frame;
	return 0;
}

/* Settles which call is open, and how the new one stands to it; calls that were left are counted. */
STATIC_FUNCTION int frame_settle(user_regs_t *regs, struct thread_state *thread, u64 cookie)
{
	int i, relation;

	if (!thread)
		return FRAME_LEFT;
	for (i = 0; i < OUTER_FRAMES + 1; i++) {
		if (!thread->frame.sp && !frame_take_back(thread))
			return FRAME_LEFT;
		relation = frame_relation(regs, thread, cookie);
		if (relation == FRAME_BESIDE)
			frame_set_aside(thread);
		if (relation != FRAME_LEFT)
			return relation;
		if (!settings.entry_only) /* there every call was counted when it began */
			account_unfinished(thread, &thread->frame, LOSS_UNFINISHED_CALL);
		thread->frame.sp = 0;
	}
	return FRAME_LEFT;
}

#endif
