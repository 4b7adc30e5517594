/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Adding one finished call to the counters. */
#ifndef INGERO_ACCOUNT_H
#define INGERO_ACCOUNT_H

#include "api_functions.h"
#include "share.h"
#include "task.h"

#define CUDA_ERROR_NOT_READY 600 /* an answer, not an error */
#define MAX_CALL_BYTES (1ULL << 43) /* 8 TiB: no buffer of one call is larger */

static const struct call_stats no_stats;

static __always_inline u32 log2_u64(u64 v)
{
	u32 shift, result;

	result = (v > 0xffffffff) << 5;
	v >>= result;
	shift = (v > 0xffff) << 4;
	v >>= shift;
	result |= shift;
	shift = (v > 0xff) << 3;
	v >>= shift;
	result |= shift;
	shift = (v > 0xf) << 2;
	v >>= shift;
	result |= shift;
	shift = (v > 0x3) << 1;
	v >>= shift;
	result |= shift;
	return result | (v >> 1);
}

/* Bucket of a duration: see wire.h. An end belongs to its bucket, as Prometheus' `le` wants it. */
static __always_inline u32 duration_bucket(u64 ns)
{
	u64 v = ns ? (ns - 1) * 128 / 125 : 0; /* 1/1024 us */
	u32 exponent, bucket;

	if (v < 64)
		return 0;
	exponent = log2_u64(v);
	bucket = 1 + (exponent - 6) * 2 + ((v >> (exponent - 1)) & 1);
	return bucket < DURATION_BUCKETS ? bucket : DURATION_BUCKETS - 1;
}

/* An index that the verifier sees bounded: the compiler would compare 32 bits of it and use 64, of which
 * kernels up to 6.1 make nothing. */
static __always_inline u64 bounded_index(u64 index, u64 last)
{
	asm volatile("" : "+r"(index));
	return index < last ? index : last;
}

static __always_inline u64 size_bucket(u64 bytes)
{
	if (bytes <= 1024)
		return 0;
	return bounded_index((log2_u64(bytes - 1) - 10) / 2 + 1, SIZE_BUCKETS - 1);
}

/* The entry of a key, made at its first call. A full map folds the process into its cgroup's entry. */
STATIC_FUNCTION struct call_stats *stats_create(struct call_key *key)
{
	struct call_key folded;
	struct call_stats *stats;

	if (!key)
		return NULL;
	bpf_map_update_elem(&calls, key, &no_stats, BPF_NOEXIST);
	stats = bpf_map_lookup_elem(&calls, key);
	if (stats)
		return stats;
	folded = *key;
	folded.tgid = 0;
	folded.process_start_ns = 0;
	stats = bpf_map_lookup_elem(&folded_calls, &folded);
	if (!stats) {
		SHARED_INSERT(&folded_calls, &folded, &no_stats, folded.cgroup_id,
			      SHARED_FOLDED_CALLS, LOSS_CALLS_MAP_FULL);
		stats = bpf_map_lookup_elem(&folded_calls, &folded);
	}
	if (stats)
		count_loss(LOSS_PROCESS_FOLDED);
	return stats;
}

static __always_inline struct call_stats *stats_of(struct call_key *key)
{
	struct call_stats *stats = bpf_map_lookup_elem(&calls, key);

	return stats ? stats : stats_create(key);
}

static __always_inline void add_to(u64 *counter, u64 n)
{
	__sync_fetch_and_add(counter, n);
}

/* Whether the code of an error found room. */
SHARED_FUNCTION int count_error(struct call_key *call, s32 code)
{
	struct error_key key = {};
	u64 zero = 0, *counter;

	if (!call)
		return 0;
	key.call = *call;
	key.code = code;
	counter = bpf_map_lookup_elem(&errors, &key);
	if (!counter) {
		SHARED_INSERT(&errors, &key, &zero, key.call.cgroup_id, SHARED_ERRORS,
			      LOSS_ERRORS_MAP_FULL);
		counter = bpf_map_lookup_elem(&errors, &key);
	}
	if (!counter)
		return 0;
	add_to(counter, 1);
	return 1;
}

static __always_inline void call_key_of(struct call_key *key, const struct thread_state *thread,
					const struct call_frame *frame)
{
	key->cgroup_id = thread->cgroup_id;
	key->process_start_ns = thread->process_start_ns;
	key->tgid = thread->tgid;
	key->function = API_COOKIE_ID(frame->cookie);
	key->direction = frame->direction;
}

/* A call whose return is not seen: counted as a call, its result and size are not known. */
SHARED_FUNCTION int account_unfinished(struct thread_state *thread, struct call_frame *frame,
				       u32 reason)
{
	struct call_key key = {};
	struct call_stats *stats;

	if (!thread || !frame || frame->muted)
		return 0;
	call_key_of(&key, thread, frame);
	stats = stats_of(&key);
	if (stats) {
		add_to(&stats->calls, 1);
		add_to(&stats->unfinished, 1);
	}
	count_loss(reason);
	return 0;
}

/* The call that was set aside last is the open one again. */
SHARED_FUNCTION int frame_take_back(struct thread_state *thread)
{
	struct call_frame *from;

	if (!thread)
		return 0;
	from = thread->outer[1].sp ? &thread->outer[1] : &thread->outer[0];
	if (!from->sp)
		return 0;
	thread->frame = *from;
	from->sp = 0;
	return 1;
}

/* Adds a finished call. `bytes` is what the call moved if it succeeded. */
static __always_inline struct call_stats *account_call(const struct thread_state *thread,
						       struct call_key *key, u64 duration,
						       u64 bytes, s32 result, int failed)
{
	struct call_stats *stats = stats_of(key);

	if (!stats)
		return NULL;
	add_to(&stats->calls, 1);
	add_to(&stats->duration_ns, duration);
	add_to(&stats->durations[duration_bucket(duration) & (DURATION_BUCKETS - 1)], 1);
	if (thread->policy.slow_call_ns && duration > thread->policy.slow_call_ns)
		add_to(&stats->slow, 1);
	if (failed) {
		add_to(&stats->errors, 1);
		if (!count_error(key, result))
			add_to(&stats->uncoded, 1);
	} else if (bytes) {
		add_to(&stats->bytes, bytes);
	}
	return stats;
}

#endif
