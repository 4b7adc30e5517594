/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Room for records in the rings that the agent reads, and when it is woken for them. */
#ifndef INGERO_RINGS_H
#define INGERO_RINGS_H

#include "maps.h"

#define LIFECYCLE_SHARE (1 << 21) /* half of the ring */

/* Whether the container may put something into the ring: one that makes events faster than they are read
 * leaves room for the others. Time is told by what the reader has read. */
static __always_inline struct lifecycle_share *lifecycle_share_of(u64 cgroup_id)
{
	u64 epoch = bpf_ringbuf_query(&lifecycle_events, BPF_RB_CONS_POS) / LIFECYCLE_SHARE;
	struct lifecycle_share *share = bpf_map_lookup_elem(&lifecycle_shares, &cgroup_id);

	if (!share) {
		static const struct lifecycle_share none;

		bpf_map_update_elem(&lifecycle_shares, &cgroup_id, &none, BPF_NOEXIST);
		share = bpf_map_lookup_elem(&lifecycle_shares, &cgroup_id);
	}
	if (share && share->epoch != epoch) {
		share->epoch = epoch;
		share->bytes = 0;
	}
	return share;
}

/* A record in the lifecycle ring; NULL: no room in it, or in the container's share, which is counted. What it
 * would have told is found by the next scan. */
static __always_inline void *lifecycle_reserve(u64 size, u64 cgroup_id)
{
	struct lifecycle_share *share = lifecycle_share_of(cgroup_id);
	void *record = NULL;

	if (!share || share->bytes < LIFECYCLE_SHARE)
		record = bpf_ringbuf_reserve(&lifecycle_events, size, 0);
	if (!record)
		count_loss(LOSS_LIFECYCLE_RING_FULL);
	else if (share)
		__sync_fetch_and_add(&share->bytes, size);
	return record;
}

/* A record in the ring of streamed events; NULL: nobody reads, or no room, which is counted. */
static __always_inline void *stream_reserve(u64 size, u32 loss)
{
	u32 zero = 0;
	void *ring = bpf_map_lookup_elem(&call_rings, &zero);
	void *record = ring ? bpf_ringbuf_reserve(ring, size, 0) : NULL;

	if (ring && !record)
		count_loss(loss);
	return record;
}

/* Flags of the submit of a record. A reader that does not sleep looks by itself every few milliseconds; one
 * that does is woken once, by whoever takes its wish away: a wake-up interrupts the own processor, which costs
 * more than the call. None is lost: it says that it sleeps and then looks whether anything is reserved, here
 * something is reserved and then looked whether it sleeps, with a full barrier between the two on both sides. */
static __always_inline u64 stream_wakeup(void)
{
	u32 order = 0;
	/* The barrier: atomics that return a value are one. */
	u32 was = __sync_lock_test_and_set(&order, 1);

	if (was || !stream_sleeps)
		return BPF_RB_NO_WAKEUP;
	return __sync_lock_test_and_set(&stream_sleeps, 0) ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP;
}

#endif
