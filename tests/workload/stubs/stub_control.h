/* SPDX-License-Identifier: Apache-2.0 */
/* How a test steers a stub library. Each library exports one `stub_control` and reads its start
 * values from the environment (PREFIX is STUB_NCCL, STUB_CUDART or STUB_CUDA):
 *   PREFIX_EVERY, PREFIX_RESULT  every Nth call returns this code
 *   PREFIX_BUSY_NS               each call spins that long
 *   PREFIX_SLEEP_NS              each call sleeps that long
 *   PREFIX_DEVICE                device of the next communicators
 */
#ifndef INGERO_WORKLOAD_STUB_CONTROL_H
#define INGERO_WORKLOAD_STUB_CONTROL_H

#ifdef __cplusplus
extern "C" {
#endif

struct stub_control {
	unsigned long long every; /* 0: never */
	unsigned long long busy_ns;
	unsigned long long calls; /* calls seen, nested ones included; updated atomically */
	int result;
	int device;
	unsigned long long sleep_ns;
};

/* Rank and size of this thread's next split; without it a split copies its parent's. */
typedef void stub_set_split_result_fn(int rank, int nranks);
/* This thread's next call leaves by longjmp into this `jmp_buf`, never by return. */
typedef void stub_set_jump_fn(void *jump_buffer);
/* This thread's next call calls back from inside, once; NULL: it does not. */
typedef void stub_hook_fn(void *argument);
typedef void stub_set_hook_fn(stub_hook_fn *hook, void *argument);

#ifdef __cplusplus
}
#endif
#endif
