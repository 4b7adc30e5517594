/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Every map, named value_by_key or for what it holds; defined in maps.bpf.c. */
#ifndef INGERO_MAPS_H
#define INGERO_MAPS_H

#include "vmlinux.h"
#include "wire.h"

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* Which programs opened a frame: with entry and return probes apart, a function's return program also runs
 * for a call that came to it by a tail call out of another family's. */
enum frame_family { FRAME_COLLECTIVE = 1, FRAME_LIFECYCLE, FRAME_COPY, FRAME_SYNC };

/* The outermost traced call that a thread is in. */
struct call_frame {
	u64 sp; /* stack pointer at entry; 0: no call */
	u64 return_address; /* entry-only mode: tells whether the call still runs */
	u64 start_ns;
	u64 cookie;
	u64 size; /* bytes, or one rank's share */
	u64 count;
	u64 comm;
	u64 stream;
	u64 out; /* address that receives the new communicator(s) */
	u64 out_before; /* what stood there at entry */
	u64 id_hash;
	s32 rank;
	u32 nranks;
	u32 redop;
	s32 peer;
	u16 direction;
	u8 datatype;
	u8 muted; /* the policy leaves this call out: only its effects on others are followed */
	u8 streamed; /* the call is sent to the ring */
	u8 family; /* enum frame_family */
	u8 unsized; /* of a copy: how much it moves is not known */
	union {
		u8 deferred; /* of a copy: its sizes can be read at the return only */
		u8 known; /* of a collective: its communicator was known at the entry */
	};
	char name[COMM_NAME_SIZE];
};

#define MAX_PENDING_COMMS 64
#define MAX_ASYNC_COMMS 64 /* of a process: made by non-blocking calls, not used yet */

/* A communicator whose pointer the library stores later. */
struct pending_comm {
	u64 out;
	u64 out_before;
	u64 id_hash;
	u64 parent;
	u64 cookie;
	s32 rank;
	u32 nranks;
	u64 cgroup_id;
	u32 device;
	u32 pad;
	char name[COMM_NAME_SIZE];
};

/* What is too large for the BPF stack, of which all callers together have 512 bytes up to Linux 6.7. It is
 * the thread's own: a program of a uprobe may be preempted, so what belongs to a processor would be
 * written over. */
struct thread_scratch {
	struct comm_info info;
	struct pending_comm pending;
};

#define OUTER_FRAMES 2
#define BATCH_CHUNK 32 /* sizes of a batch that are read at a time */

/* The sum of a batch of copies while it is made. */
struct batch_walk {
	u64 address;
	u64 left;
	u64 total;
	u32 reason; /* why the total is not known */
	u32 stopped;
	u64 chunk[BATCH_CHUNK];
};

struct thread_state {
	u64 process_start_ns;
	u32 tgid;
	u32 exec_id;
	u32 traced;
	u32 group_depth;
	u32 promises; /* this thread has made calls that promise a communicator for later */
	u32 way_back_depth; /* where it was found last, below a call's entry: see way_back.h */
	u32 groups; /* outermost ones that this thread has begun */
	u32 pending_comms; /* made in the open group, to be read at its end */
	u32 policy_generation; /* of the copy below */
	u64 unique_id_sp; /* ncclGetUniqueId called inside ncclCommInitAll */
	u64 unique_id_out;
	u64 cgroup_id; /* at the last outermost call's entry; 0: none yet */
	struct cgroup_policy policy; /* copy of what holds for that cgroup */
	/* Where code of a traced file was seen last, while settings.files_generation is this. */
	u64 library_start;
	u64 library_size;
	u32 library_generation;
	u32 device; /* that the thread has set last; 0 is what it begins with */
	struct call_frame frame;
	struct thread_scratch scratch;
	struct call_frame outer[OUTER_FRAMES]; /* set aside while a call beside them is open */
	struct batch_walk walk;
	struct call_frame elsewhere; /* a call that is counted at its entry: see nesting.h */
};

/* Where it is kept until then. */
struct pending_key {
	u64 owner; /* pid_tgid of the thread with the open group, or an async owner, see comm.h */
	u64 slot;
};

static __always_inline void async_key_of(struct pending_key *key, u64 process_start_ns, u32 tgid,
					 u32 exec_id, u32 slot)
{
	key->owner = process_start_ns | (1ULL << 63); /* no pid_tgid has the upper bit */
	key->slot = ((u64)tgid << 32) | ((exec_id & 0xffffff) << 8) | slot;
}

/* Tables that containers share: see share.h. */
#define FOLDED_CALLS_ENTRIES 2048
#define ERRORS_ENTRIES 4096
#define UNSCALED_ENTRIES 4096
#define COMMS_ENTRIES 8192
#define PENDING_ENTRIES 4096
#define STREAMS_ENTRIES 8192

/* Hash maps are preallocated: kernels before 6.1 must not allocate in a uprobe. Sizes are set at load. */
struct calls_map {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct call_key);
	__type(value, struct call_stats);
};
extern struct calls_map calls SEC(".maps");

/* Room of its own for the processes that find `calls` full: one entry per cgroup, function and direction. */
struct folded_calls_map {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, FOLDED_CALLS_ENTRIES);
	__type(key, struct call_key);
	__type(value, struct call_stats);
};
extern struct folded_calls_map folded_calls SEC(".maps");

struct errors_map {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, ERRORS_ENTRIES);
	__type(key, struct error_key);
	__type(value, u64);
};
extern struct errors_map errors SEC(".maps");

struct unscaled_map {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, UNSCALED_ENTRIES);
	__type(key, struct unscaled_key);
	__type(value, u64);
};
extern struct unscaled_map unscaled SEC(".maps");

struct processes_map {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct process_key);
	__type(value, u64); /* cgroup id of its first call, 0: none yet */
};
extern struct processes_map processes SEC(".maps");

struct comms_map {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, COMMS_ENTRIES);
	__type(key, struct comm_key);
	__type(value, struct comm_info);
};
extern struct comms_map comms SEC(".maps");

struct pending_map {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PENDING_ENTRIES);
	__type(key, struct pending_key);
	__type(value, struct pending_comm);
};
extern struct pending_map pending SEC(".maps");

struct streams_map {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, STREAMS_ENTRIES);
	__type(key, struct stream_key);
	__type(value, struct stream_state);
};
extern struct streams_map streams SEC(".maps");

struct shares_map {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, u64); /* cgroup id, or ALL_CGROUPS */
	__type(value, struct table_share);
};
extern struct shares_map shares SEC(".maps");
extern struct shares_map shares_returned SEC(".maps");

struct layouts_map {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 2 * (COOKIE_LIBRARY_MAX + 1));
	__type(key, struct layout_key);
	__type(value, struct comm_layout);
};
extern struct layouts_map layouts SEC(".maps");

struct traced_tgids_map {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, u32);
	__type(value, u8);
};
extern struct traced_tgids_map traced_tgids SEC(".maps");

/* What holds for a cgroup; those that are missing are not classified yet. */
struct policies_map {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, u64); /* cgroup id */
	__type(value, struct cgroup_policy);
};
extern struct policies_map policies SEC(".maps");

struct retransmits_map {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct retransmit_key);
	__type(value, u64);
};
extern struct retransmits_map retransmits SEC(".maps");

/* A socket's count of segments sent again, at the last look. */
struct retransmitted_map {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, u32);
};
extern struct retransmitted_map retransmitted SEC(".maps");

struct waits_map {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct wait_key);
	__type(value, struct wait_stats);
};
extern struct waits_map waits SEC(".maps");

/* How often `processes` has changed, by whom: what was found in it, or not, may be otherwise by now. */
struct process_changes_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PROCESS_CHANGES);
	__type(key, u32);
	__type(value, u64);
};
extern struct process_changes_map process_changes SEC(".maps");

struct scheduled_thread {
	u64 queued_ns; /* since when it waits for a processor; 0: it does not */
	u64 blocked_ns; /* since when it is off the processor by blocking; 0: it is not, or nobody saw */
	u32 sleep_state; /* of the block */
	u32 generation; /* of the scheduler's programs that saw the times above */
	u32 waits_generation; /* of the program that saw what follows */
	u64 waits; /* the kernel's own counts at the last look */
	u64 wait_ns;
};

struct scheduled_threads_map {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct scheduled_thread);
};
extern struct scheduled_threads_map scheduled_threads SEC(".maps");

/* Files that the agent has looked at and found to be of no interest: the iterator leaves them out. */
struct known_files_map {
	__uint(type,
	       BPF_MAP_TYPE_LRU_HASH); /* who maps more files than fit drives others out, no more */
	__uint(max_entries, 32768);
	__type(key, struct file_key);
	__type(value, struct file_version); /* when it was looked at */
};
extern struct known_files_map known_files SEC(".maps");

/* Files that have probes. */
struct traced_files_map {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, struct file_key);
	__type(value, u32); /* index of the library */
};
extern struct traced_files_map traced_files SEC(".maps");

struct losses_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, LOSS_REASONS);
	__type(key, u32);
	__type(value, u64);
};
extern struct losses_map losses SEC(".maps");

struct threads_map {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread_state);
};
extern struct threads_map threads SEC(".maps");

/* For threads whose task storage could not be made at that moment. */
struct spare_threads_map {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, u64); /* pid_tgid */
	__type(value, struct thread_state);
};
extern struct spare_threads_map spare_threads SEC(".maps");

struct lifecycle_ring {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 22);
};
extern struct lifecycle_ring lifecycle_events SEC(".maps");

/* What a container has put into the ring while the reader took so much out: see lifecycle_reserve(). */
struct lifecycle_share {
	u64 epoch;
	u64 bytes;
};
struct lifecycle_shares_map {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, u64); /* cgroup id */
	__type(value, struct lifecycle_share);
};
extern struct lifecycle_shares_map lifecycle_shares SEC(".maps");

/* The ring of streamed calls takes much memory, so it is there only while somebody reads it. */
struct call_ring {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 12);
};
struct call_rings_map {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, u32);
	__array(values, struct call_ring);
};
extern struct call_rings_map call_rings SEC(".maps");

/* Always empty: see stay_on_thread_stack(). */
struct no_programs_map {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
};
extern struct no_programs_map no_programs SEC(".maps");

extern volatile struct agent_settings settings SEC(".bss");
/* The reader of the stream sleeps and wants to be woken. Who wakes it clears this, so only one does. */
extern volatile unsigned int stream_sleeps SEC(".bss");
/* Under lockdown=confidentiality no helper reads the kernel's memory; typed loads do. */
extern const volatile unsigned int may_read_kernel SEC(".rodata");

/* Verified once by itself, not at each call: keeps the load fast. Its pointers may be null to the
 * verifier, hence the checks. Weak, because several objects bring it along. What its arguments point to is
 * neither key nor value of a map: kernels before 6.2 know only that it is memory. A function that needs
 * that is STATIC_FUNCTION. */
#define SHARED_FUNCTION __weak __noinline
#define STATIC_FUNCTION static __noinline __attribute__((unused))

static __always_inline void count_loss_n(u32 reason, u64 n)
{
	u64 *counter = bpf_map_lookup_elem(&losses, &reason);

	if (counter)
		__sync_fetch_and_add(counter, n);
}

static __always_inline void count_loss(u32 reason)
{
	count_loss_n(reason, 1);
}

#endif
