// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
/* Attached at start to a function of the agent's own: tells which attach methods work here. */
#include "frame.h"

#define SELFTEST_FRAME_SIZE 384

struct selftest_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 3);
	__type(key, u32);
	__type(value, u64);
};
/* entries seen, returns seen, last cookie */
struct selftest_map selftest_hits SEC(".maps");

static __always_inline void hit(u32 which, u64 cookie)
{
	u64 *count = bpf_map_lookup_elem(&selftest_hits, &which);
	u32 cookie_at = 2;

	if (count)
		__sync_fetch_and_add(count, 1);
	count = bpf_map_lookup_elem(&selftest_hits, &cookie_at);
	if (count)
		*count = cookie;
}

SEC("uprobe") int selftest_entry(user_regs_t *regs)
{
	hit(0, bpf_get_attach_cookie(regs));
	return 0;
}

SEC("uprobe") int selftest_return(user_regs_t *regs)
{
	hit(1, bpf_get_attach_cookie(regs));
	return 0;
}

SEC("uprobe") int selftest_session(user_regs_t *regs)
{
	hit(session_is_return(regs) ? 1 : 0, bpf_get_attach_cookie(regs));
	return 0;
}

/* Where a program with a frame as large as any of ours finds its stack, and where the thread has its own. */
struct selftest_stack {
	u64 frame;
	u64 thread_stack;
};
struct selftest_stack_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct selftest_stack);
};
struct selftest_stack_map selftest_stacks SEC(".maps");

SEC("uprobe") int selftest_frame(user_regs_t *regs)
{
	volatile char large[SELFTEST_FRAME_SIZE];
	struct selftest_stack *seen;
	u32 zero = 0;

	stay_on_thread_stack(regs);
	large[0] = 1;
	seen = bpf_map_lookup_elem(&selftest_stacks, &zero);
	if (!seen)
		return 0;
	seen->thread_stack = (u64)bpf_get_current_task_btf()->stack;
	seen->frame = (u64)&large[0];
	return large[0] - 1;
}

/* An empty pair, for measuring what a probe costs by itself. */
SEC("uprobe") int empty_probe(user_regs_t *regs)
{
	return 0;
}
