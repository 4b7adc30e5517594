// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
/* Collectives and point-to-point calls of NCCL and RCCL. */
#include "comm.h"

#define NCCL_IN_PROGRESS 7
#define NCCL_DATATYPES 12
/* log2 of each datatype's size, four bits each: int8 uint8 int32 uint32 int64 uint64 float16 float32
 * float64 bfloat16 float8e4m3 float8e5m2 */
#define NCCL_DATATYPE_SHIFTS 0x001321332200ULL

#define FUNCTION_SEND 7
#define FUNCTION_RECV 8

/* count elements in bytes; 0 with a counted reason where that can't be known. */
static __always_inline u64 elements_size(u64 count, u32 datatype)
{
	u32 shift;

	if (datatype >= NCCL_DATATYPES) {
		count_loss(LOSS_UNKNOWN_DATATYPE);
		return 0;
	}
	shift = (NCCL_DATATYPE_SHIFTS >> (4 * datatype)) & 0xf;
	if (count > (MAX_CALL_BYTES >> shift)) {
		count_loss(LOSS_FORGED_SIZE);
		return 0;
	}
	return count << shift;
}

static __always_inline int nccl_collective_enter(user_regs_t *regs, u64 cookie)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread_state *thread = thread_at_entry(task);
	struct call_frame *frame =
		thread ? frame_open(regs, thread, cookie, FRAME_IF_COUNTED) : NULL;

	if (!frame)
		return FRAME_SKIPPED;
	frame->count = call_arg(regs, API_COOKIE_BYTES(cookie));
	frame->datatype = call_arg(regs, API_COOKIE_TYPE(cookie));
	frame->comm = call_arg(regs, API_COOKIE_OBJECT(cookie));
	frame->stream = call_arg(regs, API_COOKIE_STREAM(cookie));
	frame->size = elements_size(frame->count, (u32)call_arg(regs, API_COOKIE_TYPE(cookie)));
	if (frame->streamed) {
		frame->peer = call_arg(regs, API_COOKIE_PEER(cookie));
		frame->redop = call_arg(regs, API_COOKIE_REDOP(cookie));
	}
	return frame_start(regs, thread, frame);
}

/* The communicator of this call; an unknown one is reported to the agent once, which reads its memory. */
STATIC_FUNCTION struct comm_info *comm_unknown(struct thread_state *thread, struct comm_key *key,
					       u64 cookie)
{
	struct comm_info *info;
	struct task_struct *task = bpf_get_current_task_btf();

	if (!thread || !key || !key->comm)
		return NULL;
	if (comm_publish_async(thread, key->comm))
		return bpf_map_lookup_elem(&comms, key);
	info = &thread->scratch.info;
	__builtin_memset(info, 0, sizeof(*info));
	info->rank = RANK_UNKNOWN;
	info->cgroup_id = task_cgroup_id(task);
	info->library = COOKIE_LIBRARY(cookie);
	if (comm_has_size(info->library, info->cgroup_id, key->comm))
		read_comm_ranks(info, key->comm);
	if (bpf_map_update_elem(&comms, key, info, BPF_NOEXIST))
		return bpf_map_lookup_elem(&comms, key);
	send_comm_event(EVENT_COMM_UNKNOWN, key->comm, info);
	return bpf_map_lookup_elem(&comms, key);
}

SHARED_FUNCTION int keep_unscaled(struct call_key *call, struct comm_key *comm, u64 size)
{
	struct unscaled_key key = {};

	if (!call || !comm)
		return 0;
	key.call = *call;
	key.comm = comm->comm;
	key.exec_id = comm->exec_id;
	count_loss(LOSS_UNKNOWN_COMMUNICATOR);
	if (!add_to_map(&unscaled, &key, size))
		count_loss(LOSS_UNSCALED_MAP_FULL);
	return 0;
}

/* Message size as nccl-tests defines it: a per-rank share counts once for each rank. */
static __always_inline u64 message_size(struct call_frame *frame, struct comm_info *comm)
{
	u64 ranks;

	if (!API_COOKIE_PER_RANK(frame->cookie))
		return frame->size;
	ranks = comm ? comm->nranks : 0;
	if (ranks && frame->size > MAX_CALL_BYTES / ranks) {
		count_loss(LOSS_FORGED_SIZE);
		frame->size = 0;
	}
	return frame->size * ranks;
}

/* Remembers the stream's last collective for the synchronize that may follow. */
STATIC_FUNCTION int stream_create(struct stream_key *key, struct call_key *call)
{
	struct stream_state state = {};

	if (!key || !call)
		return 0;
	state.call = *call;
	if (bpf_map_update_elem(&streams, key, &state, BPF_ANY))
		count_loss(LOSS_STREAMS_MAP_FULL);
	return 0;
}

static __always_inline void mark_stream(struct thread_state *thread, struct call_frame *frame,
					struct call_key *call)
{
	struct stream_key key = {};
	struct stream_state *state;

	key.stream = frame->stream;
	key.process_start_ns = thread->process_start_ns;
	key.tgid = thread->tgid;
	key.exec_id = thread->exec_id;
	state = bpf_map_lookup_elem(&streams, &key);
	if (!state) {
		stream_create(&key, call);
		return;
	}
	state->call = *call;
}

static __always_inline void nccl_collective_exit(user_regs_t *regs)
{
	u64 now = bpf_ktime_get_ns(), bytes, sequence = 0;
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread_state *thread = thread_at_return(task);
	struct call_frame *frame = thread ? frame_close(regs, thread) : NULL;
	struct comm_key comm_key = {};
	struct call_key key = {};
	struct comm_info *comm;
	u32 function;
	s32 result;
	int failed;

	if (!frame)
		return;
	result = (s32)USER_RESULT(regs);
	failed = result != 0 && result != NCCL_IN_PROGRESS;
	call_key_of(&key, thread, frame);
	comm_key_of(&comm_key, thread, frame->comm);
	comm = bpf_map_lookup_elem(&comms, &comm_key);
	if (!comm && !failed)
		comm = comm_unknown(thread, &comm_key, frame->cookie);
	bytes = message_size(frame, comm);
	if (!frame->muted)
		account_call(thread, &key, now - frame->start_ns, bytes, result, failed);
	if (!failed) {
		if (!bytes && frame->size && !frame->muted)
			keep_unscaled(&key, &comm_key, frame->size);
		function = key.function;
		if (comm && function != FUNCTION_SEND && function != FUNCTION_RECV) {
			comm->last_enqueue_ns = now;
			add_to(&comm->collectives, 1);
			sequence = comm->collectives;
		}
		if (!frame->muted)
			mark_stream(thread, frame, &key);
	}
	if (frame->streamed)
		send_call(task, &key, thread, frame, comm, sequence, now - frame->start_ns,
			  failed ? 0 : bytes, result, failed);
}

CALL_PROGRAMS(nccl_collective)

/* A host synchronize of a stream: the collective enqueued before it was waited for. */
static __always_inline int cuda_stream_sync_enter(user_regs_t *regs, u64 cookie)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread_state *thread = thread_at_entry(task);
	struct call_frame *frame =
		thread ? frame_open(regs, thread, cookie, FRAME_IF_COUNTED) : NULL;

	if (!frame)
		return FRAME_SKIPPED;
	frame->stream = call_arg(regs, API_COOKIE_STREAM(cookie));
	frame->count = 0;
	frame->comm = 0;
	return frame_start(regs, thread, frame);
}

static __always_inline void count_barrier(struct thread_state *thread, u64 stream)
{
	struct stream_key key = {};
	struct stream_state *state;
	struct call_stats *stats;
	struct call_key call;

	key.stream = stream;
	key.process_start_ns = thread->process_start_ns;
	key.tgid = thread->tgid;
	key.exec_id = thread->exec_id;
	state = bpf_map_lookup_elem(&streams, &key);
	if (!state)
		return;
	call = state->call;
	bpf_map_delete_elem(&streams,
			    &key); /* so that the map holds only streams nobody waited for */
	stats = stats_of(&call);
	if (stats)
		add_to(&stats->barriers, 1);
}

static __always_inline void cuda_stream_sync_exit(user_regs_t *regs)
{
	u64 now = bpf_ktime_get_ns();
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread_state *thread = thread_at_return(task);
	struct call_frame *frame = thread ? frame_close(regs, thread) : NULL;
	struct call_key key = {};
	s32 result;
	int failed;

	if (!frame)
		return;
	result = (s32)USER_RESULT(regs);
	failed = result != 0 && result != CUDA_ERROR_NOT_READY;
	call_key_of(&key, thread, frame);
	if (!frame->muted)
		account_call(thread, &key, now - frame->start_ns, 0, result, failed);
	if (result == 0)
		count_barrier(thread, frame->stream);
	if (frame->streamed)
		send_call(task, &key, thread, frame, NULL, 0, now - frame->start_ns, 0, result,
			  failed);
}

CALL_PROGRAMS(cuda_stream_sync)
