// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
/* Collectives and point-to-point calls of NCCL and RCCL. */
#include "comm.h"
#include "stream.h"

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

/* Who the communicator is before the call: another thread may end it while the call is open. */
static __always_inline void note_comm(struct thread_state *thread, struct call_frame *frame)
{
	struct comm_key key = {};
	struct comm_info *comm;

	comm_key_of(&key, thread, frame->comm);
	comm = bpf_map_lookup_elem(&comms, &key);
	frame->known = comm != NULL;
	frame->nranks = comm ? comm->nranks : 0;
}

static __always_inline int nccl_collective_enter(user_regs_t *regs, u64 cookie)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread_state *thread = thread_at_entry(task);
	struct call_frame *frame =
		thread ? frame_open(regs, thread, cookie, FRAME_COLLECTIVE, FRAME_IF_COUNTED)
		       : NULL;

	if (!frame)
		return FRAME_SKIPPED;
	frame->count = call_arg(regs, API_COOKIE_BYTES(cookie));
	frame->datatype = call_arg(regs, API_COOKIE_TYPE(cookie));
	frame->comm = call_arg(regs, API_COOKIE_OBJECT(cookie));
	frame->stream = call_arg(regs, API_COOKIE_STREAM(cookie));
	frame->size = elements_size(frame->count, (u32)call_arg(regs, API_COOKIE_TYPE(cookie)));
	note_comm(thread, frame);
	if (frame->streamed) {
		frame->peer = call_arg(regs, API_COOKIE_PEER(cookie));
		frame->redop = call_arg(regs, API_COOKIE_REDOP(cookie));
	}
	return frame_start(regs, thread, frame);
}

/* A communicator that nothing has promised: the agent is told once, and reads its memory. */
SHARED_FUNCTION int comm_report(struct thread_state *thread, u64 handle, u64 cookie)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct comm_info info = {};
	struct comm_key key = {};

	if (!thread)
		return 0;
	info.rank = RANK_UNKNOWN;
	info.cgroup_id = task_cgroup_id(task);
	info.library = COOKIE_LIBRARY(cookie);
	info.device = thread->device;
	if (comm_has_size(info.library, info.cgroup_id, handle))
		read_comm_ranks(&info, handle);
	comm_key_of(&key, thread, handle);
	if (SHARED_INSERT(&comms, &key, &info, info.cgroup_id, SHARED_COMMS, LOSS_COMMS_MAP_FULL))
		send_comm_event(EVENT_COMM_UNKNOWN, handle, &info);
	return 0;
}

SHARED_FUNCTION int keep_unscaled(struct call_key *call, struct comm_key *comm, u64 size)
{
	struct unscaled_key key = {};
	u64 zero = 0, *bytes;

	if (!call || !comm)
		return 0;
	key.call = *call;
	key.comm = comm->comm;
	key.exec_id = comm->exec_id;
	count_loss(LOSS_UNKNOWN_COMMUNICATOR);
	bytes = bpf_map_lookup_elem(&unscaled, &key);
	if (!bytes) {
		SHARED_INSERT(&unscaled, &key, &zero, key.call.cgroup_id, SHARED_UNSCALED,
			      LOSS_UNSCALED_MAP_FULL);
		bytes = bpf_map_lookup_elem(&unscaled, &key);
	}
	if (bytes)
		add_to(bytes, size);
	return 0;
}

/* Message size as nccl-tests defines it: a per-rank share counts once for each rank. */
static __always_inline u64 message_size(struct call_frame *frame, struct comm_info *comm)
{
	u64 ranks;

	if (!API_COOKIE_PER_RANK(frame->cookie))
		return frame->size;
	ranks = comm ? comm->nranks : frame->nranks;
	if (ranks && frame->size > MAX_CALL_BYTES / ranks) {
		count_loss(LOSS_FORGED_SIZE);
		frame->size = 0;
	}
	return frame->size * ranks;
}

static __always_inline void nccl_collective_exit(user_regs_t *regs)
{
	u64 now = bpf_ktime_get_ns(), bytes, sequence = 0;
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread_state *thread = thread_at_return(task);
	struct call_frame *frame = thread ? frame_close(regs, thread, FRAME_COLLECTIVE) : NULL;
	struct comm_key comm_key = {};
	struct stream_key stream = {};
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
	if (!comm && !failed && !frame->known) {
		if (frame->comm && !comm_publish_async(thread, frame->comm))
			comm_report(thread, frame->comm, frame->cookie);
		comm = bpf_map_lookup_elem(&comms, &comm_key);
	}
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
		if (!frame->muted) {
			stream_key_of(&stream, thread, frame->stream,
				      comm ? comm->device : thread->device, 0);
			mark_stream(&stream, &key);
		}
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
		thread ? frame_open(regs, thread, cookie, FRAME_SYNC, FRAME_IF_COUNTED) : NULL;

	if (!frame)
		return FRAME_SKIPPED;
	frame->stream = call_arg(regs, API_COOKIE_STREAM(cookie));
	frame->count = 0;
	frame->comm = 0;
	return frame_start(regs, thread, frame);
}

#define FUNCTION_STREAM_SYNC_PTSZ 201
#define FUNCTION_DRIVER_STREAM_SYNC_PTSZ 324

static __always_inline void cuda_stream_sync_exit(user_regs_t *regs)
{
	u64 now = bpf_ktime_get_ns();
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread_state *thread = thread_at_return(task);
	struct call_frame *frame = thread ? frame_close(regs, thread, FRAME_SYNC) : NULL;
	struct stream_key stream = {};
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
	if (result == 0) {
		stream_key_of(&stream, thread, frame->stream, thread->device,
			      key.function == FUNCTION_STREAM_SYNC_PTSZ ||
				      key.function == FUNCTION_DRIVER_STREAM_SYNC_PTSZ);
		count_barrier(&stream);
	}
	if (frame->streamed)
		send_call(task, &key, thread, frame, NULL, 0, now - frame->start_ns, 0, result,
			  failed);
}

CALL_PROGRAMS(cuda_stream_sync)
