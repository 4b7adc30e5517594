/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* The contract between the BPF programs and the agent: map keys and values, ring buffer records.
 * Fixed widths, explicit padding, sizes asserted; kinds and reasons are numbered by hand, never reused. */
#ifndef INGERO_WIRE_H
#define INGERO_WIRE_H

#include <linux/types.h>

#ifdef __cplusplus
#define WIRE_ASSERT(condition) static_assert(condition, #condition)
#else
#define WIRE_ASSERT(condition) _Static_assert(condition, #condition)
#endif

/* ---- accounting ------------------------------------------------------------------------------ */

/* One counter set: a function called by a process in a cgroup, with one copy direction. */
struct call_key {
	__u64 cgroup_id;
	__u64 process_start_ns;
	__u32 tgid; /* 0: the processes whose own entry found no room */
	__u16 function; /* id in api_functions.h */
	__u16 direction; /* enum copy_direction; 0 for anything but copies */
};
WIRE_ASSERT(sizeof(struct call_key) == 24);

/* Durations: bucket 0 holds calls up to 62.5 ns, then two buckets per doubling. An end belongs to its
 * bucket (model::duration_bucket_end_ns() gives it); the last one has none. In units of 1/1024 us, so that the ends
 * fall on 1, 2, 4 ... us exactly. */
#define DURATION_BUCKETS 64
/* Sizes: bucket 0 up to 1 KiB, then 4 KiB, 16 KiB ... bucket 12 up to 16 GiB, bucket 13 the rest. */
#define SIZE_BUCKETS 14

struct call_stats {
	__u64 calls;
	__u64 errors; /* result not success, not "in progress", not "not ready" */
	__u64 bytes; /* of successful calls */
	__u64 duration_ns; /* sum over calls whose return was seen */
	__u64 unfinished; /* calls left without returning (longjmp, missed return) */
	__u64 barriers; /* collectives followed by a host synchronize of their stream */
	__u64 slow; /* calls that took longer than their policy's threshold */
	__u64 uncoded; /* errors whose code found no room */
	__u64 sizes[SIZE_BUCKETS];
	__u64 durations[DURATION_BUCKETS];
};
WIRE_ASSERT(sizeof(struct call_stats) == 8 * (8 + SIZE_BUCKETS + DURATION_BUCKETS));

struct error_key {
	struct call_key call;
	__s32 code;
	__u32 pad;
};
WIRE_ASSERT(sizeof(struct error_key) == 32);

/* Bytes of one rank's share, for communicators whose number of ranks is not known yet: the agent
 * multiplies when it learns it. */
struct unscaled_key {
	struct call_key call;
	__u64 comm;
	__u32 exec_id;
	__u32 pad;
};
WIRE_ASSERT(sizeof(struct unscaled_key) == 40);

/* ---- identity -------------------------------------------------------------------------------- */

struct process_key {
	__u64 start_ns; /* start_boottime of the group leader */
	__u32 tgid;
	__u32 pad;
};
WIRE_ASSERT(sizeof(struct process_key) == 16);

struct comm_key {
	__u64 comm; /* the ncclComm_t */
	__u64 process_start_ns;
	__u32 tgid;
	__u32 exec_id;
};
WIRE_ASSERT(sizeof(struct comm_key) == 24);

#define RANK_UNKNOWN (-1)
#define COMM_NAME_SIZE 32

struct comm_info {
	__u64 id_hash; /* all 128 bytes of the unique id folded; 0: not known */
	__u64 cgroup_id;
	__u64 created_ns; /* CLOCK_MONOTONIC */
	__u64 last_enqueue_ns; /* CLOCK_MONOTONIC of the last collective, 0: none */
	__u64 collectives; /* sequence number: collectives enqueued, Send and Recv not counted */
	__u64 parent; /* the communicator it was split from, else 0 */
	__s32 rank; /* RANK_UNKNOWN: not known */
	__u32 nranks; /* 0: not known */
	__u32 splits; /* Split calls on it: part of the children's hash */
	__u32 shrinks;
	__u16 function; /* that created it */
	__u16 pad;
	__u32 library; /* index of the library file, as in the cookie */
	__u32 device; /* of the thread that made it */
	__u32 pad2;
	char name[COMM_NAME_SIZE];
};
WIRE_ASSERT(sizeof(struct comm_info) == 8 * 6 + 32 + COMM_NAME_SIZE);

/* The last collective on a stream that no synchronize has waited for. The default streams, which every
 * device and every thread has under the same handle, are told apart. */
#define STREAM_LEGACY 1 /* cudaStreamLegacy; also what 0 means */
#define STREAM_PER_THREAD                                                                          \
	2 /* cudaStreamPerThread; also what 0 means to the _ptds and _ptsz functions */
struct stream_key {
	__u64 stream;
	__u64 process_start_ns;
	__u32 tgid;
	__u32 exec_id;
	__u32 device; /* of a default stream */
	__u32 tid; /* of STREAM_PER_THREAD */
};
WIRE_ASSERT(sizeof(struct stream_key) == 32);

struct stream_state {
	struct call_key call;
};

/* What a library's communicators look like, by the library's release or as one container has shown. */
struct layout_key {
	__u64 cgroup_id; /* 0: any that has no entry of its own */
	__u32 library; /* index of the library file, as in the cookie */
	__u32 pad;
};
WIRE_ASSERT(sizeof(struct layout_key) == 16);

/* Where struct ncclComm keeps rank (commHash before it, nRanks behind); 0: not known. */
struct comm_layout {
	__u32 rank_offset;
	__u32 end_magic_offset; /* of the last word, which is COMM_MAGIC as the first is; 0: not known */
};
WIRE_ASSERT(sizeof(struct comm_layout) == 8);
#define COMM_MAGIC 0x0280028002800280ULL

/* Segments that TCP sent again. */
struct retransmit_key {
	__u64 cgroup_id; /* of the socket, in the v2 hierarchy */
	__u32 netns; /* inode number of its network namespace */
	__u32 family; /* AF_INET, AF_INET6 */
};
WIRE_ASSERT(sizeof(struct retransmit_key) == 16);

/* Waits for a processor, of the threads of one process. */
struct wait_key {
	__u64 cgroup_id;
	__u64 process_start_ns;
	__u32 tgid;
	__u32 pad;
};
WIRE_ASSERT(sizeof(struct wait_key) == 24);

struct wait_stats {
	__u64 waits;
	__u64 wait_ns;
	__u64 durations[DURATION_BUCKETS];
};
WIRE_ASSERT(sizeof(struct wait_stats) == 8 * (2 + DURATION_BUCKETS));

/* ---- shares: no container can fill a table that it shares with others --------------------------- */

enum shared_table {
	SHARED_FOLDED_CALLS = 0,
	SHARED_ERRORS = 1,
	SHARED_COMMS = 2,
	SHARED_UNSCALED = 3,
	SHARED_STREAMS = 4,
	SHARED_PENDING = 5,
	SHARED_CALLS = 6,
	SHARED_TABLES = 8, /* room */
};

/* Entries of one cgroup, or, under ALL_CGROUPS, of all. Those that the programs have made, less those that
 * they have deleted, stand in the map `shares`; those that the agent has deleted, in `shares_returned`, which
 * nobody else writes. */
#define ALL_CGROUPS 0
struct table_share {
	__s64 entries[SHARED_TABLES];
};

/* ---- settings: written by the agent, read on each call ----------------------------------------- */

enum cgroup_source { CGROUP_V2 = 0, CGROUP_V1_MEMORY = 1, CGROUP_V1_PIDS = 2 };

/* Which calls of a cgroup count. */
struct cgroup_policy {
	__u64 nccl_functions; /* bit n: the function with id n in api_functions.h counts */
	__u64 slow_call_ns; /* calls that take longer are counted as slow; 0: none are */
	__u32 cuda; /* copies and synchronizes count */
	__u32 stream; /* calls that count go to the ring buffer */
};
WIRE_ASSERT(sizeof(struct cgroup_policy) == 24);

struct agent_settings {
	__u32 cgroup_source;
	__u32 stream_calls; /* send every call to the ring buffer, whatever policies say */
	__u32 only_listed_processes; /* count only processes in traced_tgids */
	__u32 entry_only; /* no return probes: calls are counted, results are not known */
	/* Raised after each change of `unclassified` or of the map `policies`: threads keep a copy. */
	__u32 policy_generation;
	__u32 stream_network; /* send every retransmitted segment to the ring buffer */
	struct cgroup_policy unclassified; /* for cgroups that are not in `policies` */
	__u64 stream_waits_ns; /* send waits for a processor of this length or more; 0: none */
	__u64 stream_off_cpu_ns; /* send off-CPU spans of this length or more; 0: none */
	/* Raised when the programs of the scheduler begin to see again: what threads remember is void. */
	__u32 scheduler_generation;
	/* Raised after each change of the map `traced_files`: threads keep what they found in it. */
	__u32 files_generation;
};
WIRE_ASSERT(sizeof(struct agent_settings) == 24 + 24 + 24);

/* ---- losses: one counter each ------------------------------------------------------------------ */

enum loss_reason {
	LOSS_CALL_RING_FULL = 0, /* a streamed call found the ring buffer full */
	LOSS_LIFECYCLE_RING_FULL = 1,
	LOSS_CALLS_MAP_FULL = 2, /* a call was not counted at all */
	LOSS_PROCESS_FOLDED = 3, /* counted under its cgroup, without its process */
	LOSS_ERRORS_MAP_FULL = 4, /* the error is in the total, its code is not */
	LOSS_COMMS_MAP_FULL = 5,
	LOSS_THREAD_STATE = 6, /* no per-thread state: the call was not counted */
	LOSS_UNFINISHED_CALL = 7, /* no return seen: counted, result and size unknown */
	LOSS_ARGUMENTS_UNREADABLE = 8, /* counted without size */
	LOSS_FORGED_SIZE = 9, /* larger than any buffer: counted without size */
	LOSS_UNKNOWN_DATATYPE = 10,
	LOSS_UNKNOWN_ELEMENT_SIZE = 11, /* array copies in elements */
	LOSS_UNKNOWN_COMMUNICATOR = 12, /* size counted per rank until the communicator is known */
	LOSS_PENDING_COMMS_FULL = 13, /* too many communicators made in one group */
	LOSS_PROCESSES_MAP_FULL = 14, /* its exit is found by the next scan only */
	LOSS_UNSCALED_MAP_FULL = 15,
	LOSS_STREAMS_MAP_FULL = 16, /* a barrier may be missed */
	LOSS_RESULT_UNKNOWN = 17, /* entry-only probes */
	LOSS_RETRANSMITS_MAP_FULL = 18,
	LOSS_SCHEDULER_STATE = 19, /* a wait for a processor or an off-CPU span was not timed */
	LOSS_WAITS_MAP_FULL = 20,
	LOSS_HOST_EVENT_RING_FULL =
		21, /* a retransmission, wait or span found the call ring full */
	LOSS_OTHER_STACK =
		22, /* made on another stack while a call is open: counted at its entry */
	LOSS_NESTING_UNKNOWN =
		23, /* taken for a part of the open call: who made it cannot be told */
	LOSS_BATCH_TOO_LONG = 24, /* counted without size */
	/* What a container's share of a table has no room for. */
	LOSS_CALLS_SHARE = 25, /* a call was not counted at all */
	LOSS_ERRORS_SHARE = 26, /* as LOSS_ERRORS_MAP_FULL */
	LOSS_COMMS_SHARE = 27,
	LOSS_UNSCALED_SHARE = 28,
	LOSS_STREAMS_SHARE = 29,
	LOSS_PENDING_SHARE = 30,
	LOSS_REASONS = 31,
};

/* ---- ring buffer records ------------------------------------------------------------------------ */

enum event_kind {
	EVENT_CALL = 1,
	EVENT_PROCESS_SEEN = 2,
	EVENT_PROCESS_EXEC = 3,
	EVENT_PROCESS_EXIT = 4,
	EVENT_COMM_CREATED = 5,
	EVENT_COMM_ENDED = 6,
	EVENT_COMM_UNKNOWN = 7,
	EVENT_TCP_RETRANSMIT = 8,
	EVENT_RUN_QUEUE_WAIT = 9,
	EVENT_OFF_CPU = 10,
};

struct event_header {
	__u32 kind;
	__u32 tid;
	__u64 time_ns; /* CLOCK_MONOTONIC */
	__u64 process_start_ns;
	__u64 cgroup_id;
	__u32 tgid;
	__u32 exec_id;
};
WIRE_ASSERT(sizeof(struct event_header) == 40);

/* One call: header.time_ns is its start. */
struct call_event {
	struct event_header header;
	__u64 duration_ns;
	__u64 comm;
	__u64 comm_id_hash;
	__u64 stream;
	__u64 count;
	__u64 bytes;
	__u64 sequence;
	__s32 rank;
	__u32 nranks;
	__s32 result;
	__s32 peer; /* peer or root */
	__u32 redop;
	__u16 function;
	__u16 direction;
	__u8 datatype;
	__u8 group_depth;
	__u8 failed;
	__u8 pad;
	__u32 group; /* outermost groups that the thread has begun: while one is open, its number */
};
WIRE_ASSERT(sizeof(struct call_event) == 40 + 7 * 8 + 32);

/* Who has changed the table of processes: one counter each. */
enum process_change { CHANGED_BY_PROGRAMS = 0, CHANGED_BY_AGENT = 1, PROCESS_CHANGES = 2 };

/* A process that has executed, or ended. */
struct process_event {
	struct event_header header;
	char comm[16];
};

#define CGROUP_NAME_SIZE 256 /* NAME_MAX and its NUL */
#define CGROUP_PATH_DEPTH 32
#define CGROUP_PATH_SIZE 1024

/* First call of a process, with the path of its cgroup: it names the container even when that is gone
 * before the agent looks. */
struct process_seen_event {
	struct event_header header;
	char comm[16];
	__u32 path_size; /* bytes of names in use */
	__u32 path_whole; /* the names reach up to the root; else the upper ones are missing */
	char names[CGROUP_PATH_SIZE]; /* the leaf first, each with its NUL; without the root */
};
WIRE_ASSERT(sizeof(struct process_seen_event) == 40 + 16 + 8 + CGROUP_PATH_SIZE);

struct comm_event {
	struct event_header header;
	__u64 comm;
	struct comm_info info;
};

enum tcp_what { TCP_RETRANSMIT_SKB = 1, TCP_RETRANSMIT_SYNACK = 2 };

/* One segment sent again. header.cgroup_id is that of the socket, in the v2 hierarchy; nobody's task. */
struct tcp_event {
	struct event_header header;
	__u32 source[4]; /* network byte order; IPv4 in the first */
	__u32 destination[4];
	__u16 source_port; /* host byte order */
	__u16 destination_port;
	__u32 seq;
	__u32 netns; /* inode number */
	__u16 family; /* AF_INET, AF_INET6 */
	__u8 state; /* of the socket, as in net/tcp_states.h */
	__u8 pad;
	__u32 what; /* enum tcp_what */
	__u32 pad2;
	__u64 socket_inode; /* 0: no process holds the socket */
};
WIRE_ASSERT(sizeof(struct tcp_event) == 40 + 32 + 24 + 8);

/* How a thread slept that is off the processor. */
enum sleep_state {
	SLEEP_UNKNOWN = 0, /* another state, such as parked */
	SLEEP_INTERRUPTIBLE = 1,
	SLEEP_UNINTERRUPTIBLE = 2,
	SLEEP_STOPPED = 3, /* by a signal or a debugger */
};

/* EVENT_RUN_QUEUE_WAIT: a thread was ready to run from header.time_ns on, and did not for wait_ns.
 * EVENT_OFF_CPU: a thread left the processor by blocking at header.time_ns, and ran again wait_ns later. */
struct wait_event {
	struct event_header header;
	__u64 wait_ns;
	__u32 cpu; /* that it got */
	__u32 sleep_state; /* enum sleep_state; of an off-CPU span */
};
WIRE_ASSERT(sizeof(struct wait_event) == 56);

/* ---- what the task iterator writes: one process that has an address space ------------------------ */

struct process_record {
	__u64 process_start_ns;
	__u64 cgroup_id;
	__u32 tgid;
	__u32 tid; /* a thread that has the address space: the leader, unless it has ended */
	__u32 mappings;
	__u32 pad;
};
WIRE_ASSERT(sizeof(struct process_record) == 32);

/* ---- what the task_vma iterator writes: one executable mapping of a file ------------------------- */

/* What changes whenever a file's content does: its key is the same after it was overwritten in place. */
struct file_version {
	__u64 size;
	__u64 mtime_ns;
	__u64 ctime_ns;
};
WIRE_ASSERT(sizeof(struct file_version) == 24);

struct mapping_record {
	__u64 process_start_ns;
	__u64 cgroup_id;
	__u64 vm_start;
	__u64 vm_end;
	__u64 inode;
	struct file_version version;
	__u32 device; /* major << 20 | minor */
	__u32 generation;
	__u32 tgid;
	__u32 tid; /* a thread that has the address space: the leader, unless it has ended */
	__u32 file_system; /* its magic number */
	__u32 path_size; /* bytes of path in use, 0: no path could be made */
	char comm[16];
	char path[256]; /* the end of a longer path is kept by the agent through map_files */
};
WIRE_ASSERT(sizeof(struct mapping_record) == 8 * 8 + 6 * 4 + 16 + 256);

/* ---- what the task_file iterator writes: one socket that a process holds -------------------------- */

struct socket_holder_record {
	__u64 inode;
	__u64 process_start_ns;
	__u32 tgid;
	__u32 pad;
};
WIRE_ASSERT(sizeof(struct socket_holder_record) == 24);

struct file_key {
	__u32 device;
	__u32 generation;
	__u64 inode;
};
WIRE_ASSERT(sizeof(struct file_key) == 16);

/* The cookie's upper bits carry the index of the library file. */
#define COOKIE_LIBRARY_SHIFT 46
#define COOKIE_LIBRARY_MAX 4095
#define COOKIE_LIBRARY(cookie) ((unsigned int)(((cookie) >> COOKIE_LIBRARY_SHIFT) & 0xfff))

#endif
