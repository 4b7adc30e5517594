/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Tables that containers share. A cgroup may make a new entry while it has at most three times as many as
 * are free: one that takes all it can leaves a quarter, ten leave a thirtieth, so each that comes later finds
 * about as much as those before it have. */
#ifndef INGERO_SHARE_H
#define INGERO_SHARE_H

#include "maps.h"

#define SHARE_OF_FREE 3
#define EEXIST 17

static const struct table_share no_share;

static __always_inline s64 shared_capacity(u32 table)
{
	switch (table) {
	case SHARED_FOLDED_CALLS: return FOLDED_CALLS_ENTRIES;
	case SHARED_ERRORS: return ERRORS_ENTRIES;
	case SHARED_COMMS: return COMMS_ENTRIES;
	case SHARED_UNSCALED: return UNSCALED_ENTRIES;
	case SHARED_STREAMS: return STREAMS_ENTRIES;
	default: return PENDING_ENTRIES;
	}
}

static __always_inline u32 shared_loss(u32 table)
{
	switch (table) {
	case SHARED_FOLDED_CALLS: return LOSS_CALLS_SHARE;
	case SHARED_ERRORS: return LOSS_ERRORS_SHARE;
	case SHARED_COMMS: return LOSS_COMMS_SHARE;
	case SHARED_UNSCALED: return LOSS_UNSCALED_SHARE;
	case SHARED_STREAMS: return LOSS_STREAMS_SHARE;
	default: return LOSS_PENDING_SHARE;
	}
}

/* Adds to a cgroup's entries; how many it had before. A cgroup that finds no room among the shares has a
 * table's worth: it gets an entry only where hardly any are taken. */
SHARED_FUNCTION s64 share_change(u64 cgroup_id, u64 table, s64 change)
{
	struct table_share *share, *returned;
	u64 key = cgroup_id;
	s64 used;

	if (table >= SHARED_TABLES)
		return 0;
	share = bpf_map_lookup_elem(&shares, &key);
	if (!share) {
		bpf_map_update_elem(&shares, &key, &no_share, BPF_NOEXIST);
		share = bpf_map_lookup_elem(&shares, &key);
	}
	if (!share)
		return shared_capacity(table);
	used = __sync_fetch_and_add(&share->entries[table], change);
	returned = bpf_map_lookup_elem(&shares_returned, &key);
	return returned ? used - returned->entries[table] : used;
}

static __always_inline void share_give(u64 cgroup_id, u32 table)
{
	share_change(cgroup_id, table, -1);
	share_change(ALL_CGROUPS, table, -1);
}

/* Room for one entry; 0 and a counted reason when the cgroup has had its share. */
SHARED_FUNCTION int share_take(u64 cgroup_id, u32 table)
{
	s64 used = share_change(cgroup_id, table, 1);
	s64 left = shared_capacity(table) - share_change(ALL_CGROUPS, table, 1);

	if (used <= left * SHARE_OF_FREE)
		return 1;
	share_give(cgroup_id, table);
	count_loss(shared_loss(table));
	return 0;
}

/* Makes an entry that is not there yet. `full`: the reason when the table has no room at all. A macro: the
 * verifier of older kernels wants to see the map, the key and the value. */
#define SHARED_INSERT(map, key, value, cgroup_id, table, full)                                     \
	({                                                                                         \
		u64 _cgroup_id = (cgroup_id);                                                      \
		long _code = -EEXIST;                                                              \
		int _made = 0;                                                                     \
		if (share_take(_cgroup_id, table)) {                                               \
			_code = bpf_map_update_elem(map, key, value, BPF_NOEXIST);                 \
			_made = _code == 0;                                                        \
			if (_code)                                                                 \
				share_give(_cgroup_id, table);                                     \
			if (_code && _code != -EEXIST)                                             \
				count_loss(full);                                                  \
		}                                                                                  \
		_made;                                                                             \
	})

#endif
