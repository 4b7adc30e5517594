/* SPDX-License-Identifier: Apache-2.0 */
/* The steering of one stub library; STUB_PREFIX names its environment variables. */
#include "stub_enter.h"

#include <setjmp.h>
#include <stdlib.h>
#include <time.h>

struct stub_control stub_control;

static __thread jmp_buf *jump_target;
static __thread stub_hook_fn *hook;
static __thread void *hook_argument;

STUB_EXPORT void stub_set_jump(void *jump_buffer)
{
	jump_target = jump_buffer;
}

STUB_EXPORT void stub_set_hook(stub_hook_fn *function, void *argument)
{
	hook = function;
	hook_argument = argument;
}

static long long env_number(const char *name)
{
	const char *text = getenv(name);
	return text ? strtoll(text, NULL, 0) : 0;
}

__attribute__((constructor)) static void read_environment(void)
{
	stub_control.every = (unsigned long long)env_number(STUB_PREFIX "_EVERY");
	stub_control.result = (int)env_number(STUB_PREFIX "_RESULT");
	stub_control.busy_ns = (unsigned long long)env_number(STUB_PREFIX "_BUSY_NS");
	stub_control.sleep_ns = (unsigned long long)env_number(STUB_PREFIX "_SLEEP_NS");
	stub_control.device = (int)env_number(STUB_PREFIX "_DEVICE");
}

static unsigned long long now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (unsigned long long)now.tv_sec * 1000000000ULL + (unsigned long long)now.tv_nsec;
}

/* Spins instead of sleeping: the wait is exact, and makes no system call under seccomp. */
static void spin(unsigned long long nanoseconds)
{
	unsigned long long start = now_ns();
	while (now_ns() - start < nanoseconds)
		;
}

static void sleep_for(unsigned long long nanoseconds)
{
	struct timespec time = {(time_t)(nanoseconds / 1000000000ULL),
				(long)(nanoseconds % 1000000000ULL)};
	while (nanosleep(&time, &time))
		;
}

int stub_enter(void)
{
	unsigned long long number = __atomic_add_fetch(&stub_control.calls, 1, __ATOMIC_RELAXED);
	if (stub_control.busy_ns)
		spin(stub_control.busy_ns);
	if (stub_control.sleep_ns)
		sleep_for(stub_control.sleep_ns);
	if (hook) {
		stub_hook_fn *function = hook;
		hook = NULL;
		function(hook_argument);
	}
	if (jump_target) {
		jmp_buf *target = jump_target;
		jump_target = NULL;
		longjmp(*target, 1);
	}
	if (stub_control.every && number % stub_control.every == 0)
		return stub_control.result;
	return 0;
}
