// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
/* Groups and communicators of NCCL and RCCL: who is which rank of how many, under which id. */
#include "comm_create.h"

#define NCCL_IN_PROGRESS 7
#define FUNCTION_GROUP_START 30
#define FUNCTION_GROUP_END 31
#define FUNCTION_INIT_RANK 40
#define FUNCTION_INIT_RANK_CONFIG 41
#define FUNCTION_INIT_SCALABLE 42
#define FUNCTION_INIT_ALL 43
#define FUNCTION_SHRINK 45
#define FUNCTION_GROW 46
#define FUNCTION_DESTROY 47
#define FUNCTION_ABORT 48
#define FUNCTION_GET_UNIQUE_ID 50

#define CONFIG_SIZE_WITH_NAME 56
#define CONFIG_NAME_OFFSET 48
#define MAX_EXCLUDED 256
#define SPLIT_NO_COLOR (-1)

static __always_inline void read_name(struct call_frame *frame, u64 config)
{
	u64 size = 0, name = 0;

	__builtin_memset(frame->name, 0, COMM_NAME_SIZE);
	if (!config || bpf_probe_read_user(&size, sizeof(size), (void *)config) ||
	    size < CONFIG_SIZE_WITH_NAME)
		return;
	if (bpf_probe_read_user(&name, sizeof(name), (void *)(config + CONFIG_NAME_OFFSET)) ||
	    !name)
		return;
	bpf_probe_read_user_str(frame->name, COMM_NAME_SIZE, (void *)name);
}

STATIC_FUNCTION struct comm_info *known_comm(struct thread_state *thread, u64 handle)
{
	struct comm_key key = {};

	if (!thread)
		return NULL;
	comm_key_of(&key, thread, handle);
	return bpf_map_lookup_elem(&comms, &key);
}

/* Children are numbered by the calls that made them, on every rank alike: one that fails on this rank makes
 * none on any other. */
static __always_inline void count_child(struct thread_state *thread, struct call_frame *frame)
{
	u32 function = API_COOKIE_ID(frame->cookie);
	struct comm_info *parent;

	if (function != FUNCTION_SPLIT && function != FUNCTION_SHRINK)
		return;
	parent = known_comm(thread, frame->comm);
	if (!parent)
		return;
	if (function == FUNCTION_SPLIT)
		parent->splits++;
	else
		parent->shrinks++;
}

static __always_inline void begin_comm(struct thread_state *thread, struct call_frame *frame,
				       u64 out, u32 nranks, s32 rank, u64 hash)
{
	frame->out = out;
	frame->out_before = user_pointer(out);
	frame->nranks = nranks;
	frame->rank = rank;
	frame->id_hash = hash;
	/* Another handle may lie there, that an earlier call has promised: nobody else will see it any more. */
	if (frame->out_before)
		comm_publish_async(thread, frame->out_before);
	if (settings.entry_only)
		count_child(thread, frame);
}

/* 1 or 0, without a branch: a branch per rank would double what kernels up to 5.15 have to verify. */
static __always_inline u32 is_less(s32 a, s32 b)
{
	u64 difference = (s64)a - (s64)b;

	asm volatile("" : "+r"(difference));
	return difference >> 63;
}

/* Ranks are renumbered in order, the excluded ones left out. */
SHARED_FUNCTION int shrink_ranks(struct call_frame *frame, struct comm_info *parent, u64 list,
				 u32 excluded)
{
	s32 own, rank, out, i;

	if (!frame || !parent)
		return 0;
	own = parent->rank;
	rank = own;
	if (rank < 0 || excluded >= parent->nranks || excluded > MAX_EXCLUDED)
		return 0;
	for (i = 0; i < MAX_EXCLUDED; i++) {
		if ((u32)i >= excluded)
			break;
		if (bpf_probe_read_user(&out, sizeof(out), (void *)(list + 4 * (u64)i))) {
			count_loss(LOSS_ARGUMENTS_UNREADABLE);
			return 0;
		}
		rank -= is_less(out, own);
	}
	frame->nranks = parent->nranks - excluded;
	frame->rank = rank;
	return 0;
}

/* ncclCommSplit(comm, color, key, newcomm, config): every rank of the parent calls it, so its number and
 * color name the child the same way everywhere. Rank and size are not among the arguments. */
STATIC_FUNCTION int split_enter(user_regs_t *regs, struct thread_state *thread,
				struct call_frame *frame)
{
	struct comm_info *parent;
	u32 nranks = 0;
	u64 hash = 0;

	if (!thread || !frame)
		return 0;
	parent = known_comm(thread, frame->comm);
	if (parent && parent->id_hash)
		hash = hash_pair(parent->id_hash,
				 ((u64)parent->splits << 32) | (u32)call_arg(regs, 2));
	if (parent && parent->nranks &&
	    comm_memory_ranks(parent->library, parent->cgroup_id, frame->comm) ==
		    pack_ranks(parent->rank, parent->nranks))
		nranks = NRANKS_IN_MEMORY;
	begin_comm(thread, frame, call_arg(regs, 4), nranks, RANK_UNKNOWN, hash);
	if ((s32)call_arg(regs, 2) == SPLIT_NO_COLOR)
		frame->out = 0;
	read_name(frame, call_arg(regs, 5));
	return 0;
}

/* ncclCommShrink(comm, excluded, n, newcomm, config, flags) */
STATIC_FUNCTION int shrink_enter(user_regs_t *regs, struct thread_state *thread,
				 struct call_frame *frame)
{
	struct comm_info *parent;
	u64 hash = 0;

	if (!thread || !frame)
		return 0;
	parent = known_comm(thread, frame->comm);
	if (parent && parent->id_hash)
		hash = hash_pair(~parent->id_hash, parent->shrinks);
	begin_comm(thread, frame, call_arg(regs, 4), 0, RANK_UNKNOWN, hash);
	shrink_ranks(frame, parent, call_arg(regs, 2), (u32)call_arg(regs, 3));
	read_name(frame, call_arg(regs, 5));
	return 0;
}

/* ncclCommGrow(comm, nranks, id, rank, newcomm, config): ranks of the parent keep theirs and pass -1. */
STATIC_FUNCTION int grow_enter(user_regs_t *regs, struct thread_state *thread,
			       struct call_frame *frame)
{
	struct comm_info *parent;
	s32 rank = (s32)call_arg(regs, 4);
	u64 id = call_arg(regs, 3);

	if (!thread || !frame)
		return 0;
	parent = known_comm(thread, frame->comm);
	if (rank < 0 && parent)
		rank = parent->rank;
	begin_comm(thread, frame, call_arg(regs, 5), (u32)call_arg(regs, 2), rank,
		   id ? unique_id_hash(id) : 0);
	read_name(frame, call_arg(regs, 6));
	return 0;
}

/* At the call's entry: at its return another thread may have a new communicator under the same handle. The
 * frame keeps who it was. */
SHARED_FUNCTION int end_comm(struct thread_state *thread, struct call_frame *frame, u64 handle)
{
	struct comm_info *info;
	struct comm_key key = {};

	if (!thread || !frame)
		return 0;
	frame->rank = RANK_UNKNOWN;
	frame->nranks = 0;
	frame->id_hash = 0;
	comm_key_of(&key, thread, handle);
	info = bpf_map_lookup_elem(&comms, &key);
	if (!info)
		return 0;
	frame->rank = info->rank;
	frame->nranks = info->nranks;
	frame->id_hash = info->id_hash;
	thread->scratch.info = *info;
	if (bpf_map_delete_elem(&comms, &key)) /* another thread ends it too */
		return 0;
	share_give(thread->scratch.info.cgroup_id, SHARED_COMMS);
	send_comm_event(EVENT_COMM_ENDED, handle, &thread->scratch.info);
	return 0;
}

STATIC_FUNCTION int lifecycle_arguments(user_regs_t *regs, struct thread_state *thread,
					struct call_frame *frame, u32 function)
{
	if (!thread || !frame)
		return 0;
	frame->out = 0;
	frame->comm = 0;
	switch (function) {
	case FUNCTION_INIT_RANK:
	case FUNCTION_INIT_RANK_CONFIG:
		begin_comm(thread, frame, call_arg(regs, 1), (u32)call_arg(regs, 2),
			   (s32)call_arg(regs, ARG_BEHIND_UNIQUE_ID(4)),
			   unique_id_hash(UNIQUE_ID_ADDRESS(regs)));
		read_name(frame, function == FUNCTION_INIT_RANK_CONFIG
					 ? call_arg(regs, ARG_BEHIND_UNIQUE_ID(5))
					 : 0);
		break;
	case FUNCTION_INIT_SCALABLE:
		begin_comm(thread, frame, call_arg(regs, 1), (u32)call_arg(regs, 2),
			   (s32)call_arg(regs, 3), unique_id_hash(call_arg(regs, 5)));
		read_name(frame, call_arg(regs, 6));
		break;
	case FUNCTION_INIT_ALL:
		begin_comm(thread, frame, call_arg(regs, 1), (u32)call_arg(regs, 2), 0, 0);
		frame->out_before = call_arg(regs, 3); /* the devices; NULL: 0, 1, 2 ... */
		read_name(frame, 0);
		break;
	case FUNCTION_SPLIT:
		frame->comm = call_arg(regs, 1);
		split_enter(regs, thread, frame);
		break;
	case FUNCTION_SHRINK:
		frame->comm = call_arg(regs, 1);
		shrink_enter(regs, thread, frame);
		break;
	case FUNCTION_GROW:
		frame->comm = call_arg(regs, 1);
		grow_enter(regs, thread, frame);
		break;
	case FUNCTION_DESTROY:
	case FUNCTION_ABORT:
		frame->comm = call_arg(regs, 1);
		end_comm(thread, frame, frame->comm);
		break;
	default: /* Finalize */ frame->comm = call_arg(regs, API_COOKIE_OBJECT(frame->cookie));
	}
	return 0;
}

static __always_inline int nccl_lifecycle_enter(user_regs_t *regs, u64 cookie)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread_state *thread = thread_at_entry(task);
	u32 function = API_COOKIE_ID(cookie);
	struct call_frame *frame;

	if (!thread)
		return FRAME_SKIPPED;
	if (function == FUNCTION_GET_UNIQUE_ID && !settings.entry_only &&
	    thread->frame.sp > USER_SP(regs) &&
	    API_COOKIE_ID(thread->frame.cookie) == FUNCTION_INIT_ALL) {
		thread->unique_id_sp = USER_SP(regs);
		thread->unique_id_out = call_arg(regs, 1);
		return FRAME_ENTERED;
	}
	frame = frame_open(regs, thread, cookie, FRAME_LIFECYCLE, FRAME_ALWAYS);
	if (!frame)
		return FRAME_SKIPPED;
	frame->count = 0;
	frame->stream = 0;
	frame->datatype = 0;
	lifecycle_arguments(regs, thread, frame, function);
	return frame_start(regs, thread, frame);
}

SHARED_FUNCTION int init_all_exit(struct thread_state *thread, struct call_frame *frame)
{
	struct pending_comm *comm;
	u32 nranks, i;

	if (!thread || !frame)
		return 0;
	nranks = frame->nranks;
	comm = &thread->scratch.pending;
	__builtin_memset(comm, 0, sizeof(*comm));
	comm->cookie = frame->cookie;
	comm->nranks = nranks;
	comm->id_hash = frame->id_hash;
	if (!comm->id_hash) /* the library made its id without the public call: unique, if not comparable */
		comm->id_hash = hash_pair(thread->process_start_ns ^ thread->tgid, frame->start_ns);
	for (i = 0; i < MAX_PENDING_COMMS; i++) {
		if (i >= nranks)
			break;
		comm->rank = i;
		comm->device = i;
		if (frame->out_before)
			bpf_probe_read_user(&comm->device, sizeof(comm->device),
					    (void *)(frame->out_before + 4 * (u64)i));
		comm_publish(thread, comm, user_pointer(frame->out + 8 * (u64)i));
	}
	if (nranks > MAX_PENDING_COMMS)
		count_loss_n(LOSS_PENDING_COMMS_FULL, nranks - MAX_PENDING_COMMS);
	return 0;
}

STATIC_FUNCTION int create_exit(struct thread_state *thread, struct call_frame *frame,
				int in_progress)
{
	struct pending_comm *comm;

	if (!thread || !frame)
		return 0;
	count_child(thread, frame);
	if (!frame->out)
		return 0;
	comm = &thread->scratch.pending;
	comm->out = frame->out;
	comm->out_before = frame->out_before;
	comm->id_hash = frame->id_hash;
	comm->parent = frame->comm;
	comm->cookie = frame->cookie;
	comm->rank = frame->rank;
	comm->nranks = frame->nranks;
	comm->device = thread->device;
	comm->cgroup_id = thread->cgroup_id;
	__builtin_memcpy(comm->name, frame->name, COMM_NAME_SIZE);
	comm_created(thread, comm, in_progress);
	return 0;
}

STATIC_FUNCTION int lifecycle_effects(struct thread_state *thread, struct call_frame *frame,
				      u32 function, s32 result)
{
	int in_progress = result == NCCL_IN_PROGRESS, failed = result != 0 && !in_progress;

	if (!thread || !frame)
		return 0;
	switch (function) {
	case FUNCTION_GROUP_START:
		if (failed)
			break;
		if (!thread->group_depth)
			thread->groups++;
		thread->group_depth++;
		break;
	case FUNCTION_GROUP_END:
		if (thread->group_depth)
			thread->group_depth--;
		if (!thread->group_depth && thread->pending_comms)
			comms_at_group_end(thread, in_progress);
		break;
	case FUNCTION_INIT_ALL:
		if (!failed)
			init_all_exit(thread, frame);
		break;
	default:
		if (!failed)
			create_exit(thread, frame, in_progress);
	}
	return 0;
}

/* The communicator that the call made, ended or was about. */
static __always_inline struct comm_info *
comm_of_call(struct thread_state *thread, struct call_frame *frame, u32 function, int failed)
{
	struct comm_info *ended = &thread->scratch.info;

	if (function == FUNCTION_DESTROY || function == FUNCTION_ABORT) {
		ended->rank = frame->rank;
		ended->nranks = frame->nranks;
		ended->id_hash = frame->id_hash;
		return ended;
	}
	if (frame->out && !failed) /* the line names the communicator that was made */
		frame->comm = user_pointer(frame->out);
	return frame->comm ? known_comm(thread, frame->comm) : NULL;
}

static __always_inline void nccl_lifecycle_exit(user_regs_t *regs)
{
	struct comm_info *comm;
	u64 now = bpf_ktime_get_ns();
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread_state *thread = thread_at_return(task);
	struct call_key key = {};
	struct call_frame *frame;
	s32 result;
	int failed;

	if (!thread)
		return;
	result = (s32)USER_RESULT(regs);
	if (thread->unique_id_sp && USER_SP(regs) == thread->unique_id_sp + RETURN_SP_DELTA) {
		thread->unique_id_sp = 0;
		if (result == 0)
			thread->frame.id_hash = unique_id_hash(thread->unique_id_out);
		return;
	}
	frame = frame_close(regs, thread, FRAME_LIFECYCLE);
	if (!frame)
		return;
	failed = result != 0 && result != NCCL_IN_PROGRESS;
	call_key_of(&key, thread, frame);
	if (!frame->muted)
		account_call(thread, &key, now - frame->start_ns, 0, result, failed);
	lifecycle_effects(thread, frame, key.function, result);
	if (!frame->streamed)
		return;
	comm = comm_of_call(thread, frame, key.function, failed);
	send_call(task, &key, thread, frame, comm, 0, now - frame->start_ns, 0, result, failed);
}

CALL_PROGRAMS(nccl_lifecycle)
