// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
/* Calls that are followed, not counted. Their entries alone are looked at, inside whatever call they come:
 * that harms nobody on any stack. */
#include "comm_create.h"
#include "stream.h"

#define FUNCTION_COMM_POLL 51
#define FUNCTION_SET_DEVICE 202

/* The handle of a stream that is destroyed may come again, for another one. */
static __always_inline void stream_ended(struct thread_state *thread, u64 stream)
{
	struct stream_key key = {};
	struct stream_state *state;
	u64 cgroup_id;

	if (stream <= STREAM_PER_THREAD)
		return;
	stream_key_of(&key, thread, stream, 0, 0);
	state = bpf_map_lookup_elem(&streams, &key);
	if (!state)
		return;
	cgroup_id = state->call.cgroup_id;
	if (!bpf_map_delete_elem(&streams, &key))
		share_give(cgroup_id, SHARED_STREAMS);
}

static __always_inline void followed_enter(user_regs_t *regs, u64 cookie)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread_state *thread = thread_at_entry(task);

	if (!thread || !thread->traced)
		return;
	switch (API_COOKIE_ID(cookie)) {
	case FUNCTION_SET_DEVICE: thread->device = call_arg(regs, 1); break;
	case FUNCTION_COMM_POLL: promises_look(thread); break;
	default: stream_ended(thread, call_arg(regs, 1));
	}
}

SEC("uprobe") int followed_entry(user_regs_t *regs)
{
	stay_on_thread_stack(regs);
	followed_enter(regs, bpf_get_attach_cookie(regs));
	return 0;
}

SEC("uprobe") int followed_session(user_regs_t *regs)
{
	stay_on_thread_stack(regs);
	followed_enter(regs, bpf_get_attach_cookie(regs));
	return FRAME_SKIPPED;
}
