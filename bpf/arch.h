/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* The only file that knows the calling conventions. */
#ifndef INGERO_ARCH_H
#define INGERO_ARCH_H

#include <linux/ptrace.h>

#include "vmlinux.h"

#include <bpf/bpf_helpers.h>

/* A load at a fixed offset of the context: written out, because the compiler would join the branches of a
 * switch into one load at a computed offset, which the verifier refuses. */
#define LOAD_REGISTER(regs, field)                                                                 \
	({                                                                                         \
		u64 _value;                                                                        \
		asm volatile("%0 = *(u64 *)(%1 + %2)"                                              \
			     : "=r"(_value)                                                        \
			     : "r"(regs), "i"(__builtin_offsetof(user_regs_t, field)));            \
		_value;                                                                            \
	})

#if defined(__TARGET_ARCH_x86)

typedef struct pt_regs user_regs_t;
#define REGISTER_ARGS 6
#define USER_SP(regs) ((regs)->rsp)
#define USER_IP(regs) ((regs)->rip)
#define USER_RESULT(regs) ((regs)->rax)
/* At entry the return address lies on top of the stack; `ret` has popped it at return. */
#define STACK_ARGS_OFFSET 8
#define RETURN_SP_DELTA 8
/* A 128-byte structure by value: on the stack, and the arguments behind it move up. */
#define UNIQUE_ID_ADDRESS(regs) (USER_SP(regs) + STACK_ARGS_OFFSET)
#define ARG_BEHIND_UNIQUE_ID(n) ((n)-1)

static __always_inline u64 register_arg(const user_regs_t *regs, u32 n)
{
	switch (n) {
	case 1: return LOAD_REGISTER(regs, rdi);
	case 2: return LOAD_REGISTER(regs, rsi);
	case 3: return LOAD_REGISTER(regs, rdx);
	case 4: return LOAD_REGISTER(regs, rcx);
	case 5: return LOAD_REGISTER(regs, r8);
	default: return LOAD_REGISTER(regs, r9);
	}
}

/* At a call's entry: where it returns to. */
static __always_inline u64 return_address(const user_regs_t *regs)
{
	u64 address = 0;

	bpf_probe_read_user(&address, sizeof(address), (void *)USER_SP(regs));
	return address;
}

/* The caller puts it where the stack pointer stands at entry, or the function that is called puts it somewhere
 * into its own frame. */
#define RETURN_ADDRESS_PUSHED 1
#define RETURN_ADDRESS_MASK (~0ULL)

/* Where the thread's own data lie: glibc and musl put them into the same mapping as its stack. */
#define THREAD_POINTER(task) ((task)->thread.fsbase)

#elif defined(__TARGET_ARCH_arm64)

typedef struct user_pt_regs user_regs_t;
#define REGISTER_ARGS 8
#define USER_SP(regs) ((regs)->sp)
#define USER_IP(regs) ((regs)->pc)
#define USER_RESULT(regs) ((regs)->regs[0])
#define STACK_ARGS_OFFSET 0
#define RETURN_SP_DELTA 0
/* By value means a pointer to the caller's copy, which takes an argument place of its own. */
#define UNIQUE_ID_ADDRESS(regs) ((regs)->regs[2])
#define ARG_BEHIND_UNIQUE_ID(n) (n)

static __always_inline u64 register_arg(const user_regs_t *regs, u32 n)
{
	switch (n) {
	case 1: return LOAD_REGISTER(regs, regs[0]);
	case 2: return LOAD_REGISTER(regs, regs[1]);
	case 3: return LOAD_REGISTER(regs, regs[2]);
	case 4: return LOAD_REGISTER(regs, regs[3]);
	case 5: return LOAD_REGISTER(regs, regs[4]);
	case 6: return LOAD_REGISTER(regs, regs[5]);
	case 7: return LOAD_REGISTER(regs, regs[6]);
	default: return LOAD_REGISTER(regs, regs[7]);
	}
}

/* At a call's entry: where it returns to. */
static __always_inline u64 return_address(const user_regs_t *regs)
{
	return LOAD_REGISTER(regs, regs[30]);
}

#define RETURN_ADDRESS_PUSHED 0
/* Functions that protect theirs sign the bits above. */
#define RETURN_ADDRESS_MASK ((1ULL << 48) - 1)

#define THREAD_POINTER(task) ((task)->thread.uw.tp_value)

#else
#error "no argument layout for this architecture"
#endif

/* Argument n (1-based) of the call, from its register or its stack slot; 0 for n == 0. */
static __always_inline u64 call_arg(const user_regs_t *regs, u32 n)
{
	u64 value = 0;

	if (n == 0)
		return 0;
	if (n <= REGISTER_ARGS)
		return register_arg(regs, n);
	bpf_probe_read_user(
		&value, sizeof(value),
		(void *)(USER_SP(regs) + STACK_ARGS_OFFSET + 8 * (u64)(n - REGISTER_ARGS - 1)));
	return value;
}

#endif
