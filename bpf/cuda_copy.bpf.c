// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
/* Memory copies of the CUDA runtime and driver. */
#include "frame.h"

#define CAN_LOOP bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_loop) /* 5.17 */
#define MAX_BATCH (1 << 20)
#define MAX_STEPS_WITHOUT_LOOP 512

static __always_inline u64 user_u64(u64 address)
{
	u64 value = 0;

	bpf_probe_read_user(&value, sizeof(value), (void *)address);
	return value;
}

/* The call counts; how much it moves is not known, so nothing goes into the bytes and the sizes. */
static __always_inline void copy_unsized(struct call_frame *frame, u32 reason)
{
	frame->size = 0;
	frame->unsized = 1;
	count_loss(reason);
}

static __always_inline void copy_sized(struct call_frame *frame, u64 size)
{
	if (size > MAX_CALL_BYTES)
		copy_unsized(frame, LOSS_FORGED_SIZE);
	else
		frame->size = size;
}

/* width * height * depth; above MAX_CALL_BYTES where no machine can hold it. */
static __always_inline u64 volume(u64 width, u64 height, u64 depth)
{
	u64 limit = MAX_CALL_BYTES;

	if (!width || !height || !depth)
		return 0;
	if (width > limit || height > limit / width || depth > limit / (width * height))
		return limit + 1;
	return width * height * depth;
}

struct copy_extent {
	u64 width;
	u64 height;
	u64 depth;
};

#define OPERAND_POINTER 1 /* cudaMemcpyOperandTypePointer */

/* cudaMemcpy3DBatchOp and CUDA_MEMCPY3D_BATCH_OP */
struct copy_operation {
	u32 from_type;
	u32 padding;
	u64 from[4];
	u32 to_type;
	u32 more_padding;
	u64 to[4];
	struct copy_extent extent;
	u64 attributes;
};
_Static_assert(sizeof(struct copy_operation) == 112, "cudaMemcpy3DBatchOp");
_Static_assert(sizeof(struct copy_operation) <= 8 * BATCH_CHUNK,
	       "an operation fits into the chunk");

/* CUmemorytype pair to a direction: 1 host, 2 device, 3 array (on the device), 4 unified. */
static __always_inline u16 driver_direction(u32 from, u32 to)
{
	int from_host = from == 1, to_host = to == 1;

	if (from == 4 || to == 4)
		return COPY_DEFAULT;
	if (from < 1 || from > 3 || to < 1 || to > 3)
		return COPY_UNKNOWN;
	if (from_host)
		return to_host ? COPY_H2H : COPY_H2D;
	return to_host ? COPY_D2H : COPY_D2D;
}

static __always_inline int read_extent(struct copy_extent *extent, u64 address)
{
	return bpf_probe_read_user(extent, sizeof(*extent), (void *)address);
}

/* Structures of the runtime: an array operand means that the width counts elements of unknown size. */
static __always_inline void runtime_3d(struct call_frame *frame, u64 params, u32 second_array,
				       u32 extent_at)
{
	struct copy_extent extent;

	if (read_extent(&extent, params + extent_at)) {
		copy_unsized(frame, LOSS_ARGUMENTS_UNREADABLE);
		return;
	}
	if (user_u64(params) || user_u64(params + second_array)) {
		copy_unsized(frame, LOSS_UNKNOWN_ELEMENT_SIZE);
		return;
	}
	copy_sized(frame, volume(extent.width, extent.height, extent.depth));
}

SHARED_FUNCTION int struct_copy(struct call_frame *frame, u64 params, u32 layout)
{
	struct copy_extent extent = {.depth = 1};
	u32 from, to, kind;

	if (!frame)
		return 0;
	switch (layout) {
	case API_LAYOUT_RT_3D:
		if (bpf_probe_read_user(&kind, sizeof(kind), (void *)(params + 152)))
			kind = COPY_UNKNOWN;
		frame->direction = kind <= COPY_DEFAULT ? kind : COPY_UNKNOWN;
		runtime_3d(frame, params, 64, 128);
		break;
	case API_LAYOUT_RT_3D_PEER:
		frame->direction = COPY_D2D;
		runtime_3d(frame, params, 72, 144);
		break;
	case API_LAYOUT_DRV_2D:
		from = user_u64(params + 16);
		to = user_u64(params + 72);
		frame->direction = driver_direction(from, to);
		if (bpf_probe_read_user(&extent, 16, (void *)(params + 112)))
			copy_unsized(frame, LOSS_ARGUMENTS_UNREADABLE);
		else
			copy_sized(frame, volume(extent.width, extent.height, 1));
		break;
	case API_LAYOUT_DRV_3D:
		from = user_u64(params + 32);
		to = user_u64(params + 120);
		frame->direction = driver_direction(from, to);
		if (read_extent(&extent, params + 176))
			copy_unsized(frame, LOSS_ARGUMENTS_UNREADABLE);
		else
			copy_sized(frame, volume(extent.width, extent.height, extent.depth));
		break;
	}
	return 0;
}

/* ---- batches: an array of sizes, or of operations --------------------------------------------- */

/* Its numbers are the thread's: on the stack the verifier would follow them round after round. */
struct batch_context {
	struct thread_state *thread;
};

static __always_inline long batch_stop(struct batch_walk *walk, u32 reason)
{
	walk->reason = reason;
	walk->stopped = 1;
	return 1;
}

/* The next sizes of the array. */
static long add_sizes(u32 step, void *data)
{
	struct thread_state *thread = ((struct batch_context *)data)->thread;
	struct batch_walk *walk;
	u64 n, all = 0, sum = 0;
	u32 i;

	if (!thread)
		return 1;
	walk = &thread->walk;
	n = bounded_index(walk->left, BATCH_CHUNK);
	if (!n)
		return 1;
	if (n < BATCH_CHUNK)
		__builtin_memset(walk->chunk, 0, sizeof(walk->chunk));
	if (bpf_probe_read_user(walk->chunk, n * 8, (void *)walk->address))
		return batch_stop(walk, LOSS_ARGUMENTS_UNREADABLE);
	for (i = 0; i < BATCH_CHUNK; i++) {
		all |= walk->chunk[i];
		sum += walk->chunk[i];
	}
	walk->total += sum;
	if (all >= 2 * MAX_CALL_BYTES || walk->total > MAX_CALL_BYTES)
		return batch_stop(walk, LOSS_FORGED_SIZE);
	walk->address += n * 8;
	walk->left -= n;
	return walk->left == 0;
}

/* The next operation; an array operand means elements of unknown size. */
static long add_operation(u32 step, void *data)
{
	struct thread_state *thread = ((struct batch_context *)data)->thread;
	struct copy_operation *operation;
	struct batch_walk *walk;

	if (!thread)
		return 1;
	walk = &thread->walk;
	if (!walk->left)
		return 1;
	operation = (void *)walk->chunk;
	if (bpf_probe_read_user(operation, sizeof(*operation), (void *)walk->address))
		return batch_stop(walk, LOSS_ARGUMENTS_UNREADABLE);
	if (operation->from_type != OPERAND_POINTER || operation->to_type != OPERAND_POINTER)
		return batch_stop(walk, LOSS_UNKNOWN_ELEMENT_SIZE);
	walk->total +=
		volume(operation->extent.width, operation->extent.height, operation->extent.depth);
	if (walk->total > MAX_CALL_BYTES)
		return batch_stop(walk, LOSS_FORGED_SIZE);
	walk->address += sizeof(*operation);
	walk->left--;
	return walk->left == 0;
}

/* Sums up what the frame's arguments point to. At the entry the pages may not be there yet: nobody may
 * have touched them, and a program that waits for them would have to leave its stack. By the return the
 * library has read them. */
STATIC_FUNCTION int batch_size(struct thread_state *thread, struct call_frame *frame, u32 layout,
			       u32 at_return)
{
	struct batch_context context = {.thread = thread};
	struct batch_walk *walk;
	u64 steps, i;

	if (!thread || !frame)
		return 0;
	walk = &thread->walk;
	walk->address = frame->out;
	walk->left = frame->count;
	walk->total = 0;
	walk->stopped = 0;
	if (walk->left > MAX_BATCH) {
		copy_unsized(frame, LOSS_BATCH_TOO_LONG);
		return 0;
	}
	steps = layout == API_LAYOUT_BATCH ? (walk->left + BATCH_CHUNK - 1) / BATCH_CHUNK
					   : walk->left;
	if (CAN_LOOP) {
		if (layout == API_LAYOUT_BATCH)
			bpf_loop(steps, add_sizes, &context, 0);
		else
			bpf_loop(steps, add_operation, &context, 0);
	} else {
		for (i = 0; i < MAX_STEPS_WITHOUT_LOOP; i++) {
			if (layout == API_LAYOUT_BATCH ? add_sizes(i, &context)
						       : add_operation(i, &context))
				break;
		}
		if (!walk->stopped && walk->left)
			batch_stop(walk, LOSS_BATCH_TOO_LONG);
	}
	frame->deferred = 0;
	if (!walk->stopped)
		frame->size = walk->total;
	else if (walk->reason == LOSS_ARGUMENTS_UNREADABLE && !at_return)
		frame->deferred = 1;
	else
		copy_unsized(frame, walk->reason);
	return 0;
}

/* cudaMemcpyKind as it was passed: 32 bits, anything. */
static __always_inline u16 direction_of(u64 kind)
{
	return (u32)kind <= COPY_DEFAULT ? (u32)kind : COPY_UNKNOWN;
}

static __always_inline void copy_arguments(user_regs_t *regs, struct call_frame *frame, u64 cookie)
{
	u32 factor = API_COOKIE_FACTOR(cookie), fixed = API_COOKIE_DIRECTION(cookie);
	u64 size = call_arg(regs, API_COOKIE_BYTES(cookie));

	copy_sized(frame, factor ? volume(size, call_arg(regs, factor), 1) : size);
	frame->direction =
		fixed ? fixed - 1 : direction_of(call_arg(regs, API_COOKIE_TYPE(cookie)));
}

static __always_inline void batch_arguments(user_regs_t *regs, struct thread_state *thread,
					    struct call_frame *frame, u64 cookie, u32 layout)
{
	u32 factor = API_COOKIE_FACTOR(cookie);

	frame->out = call_arg(regs, API_COOKIE_BYTES(cookie));
	frame->count = factor ? call_arg(regs, factor) : 1;
	frame->direction = COPY_UNKNOWN;
	batch_size(thread, frame, layout, settings.entry_only || frame == &thread->elsewhere);
}

static __always_inline int is_batch(u32 layout)
{
	return layout == API_LAYOUT_BATCH || layout == API_LAYOUT_BATCH_3D;
}

static __always_inline int cuda_copy_enter(user_regs_t *regs, u64 cookie)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread_state *thread = thread_at_entry(task);
	struct call_frame *frame =
		thread ? frame_open(regs, thread, cookie, FRAME_COPY, FRAME_IF_COUNTED) : NULL;
	u32 layout = API_COOKIE_LAYOUT(cookie);

	if (!frame)
		return FRAME_SKIPPED;
	frame->count = 0;
	frame->unsized = 0;
	frame->deferred = 0;
	if (layout == API_LAYOUT_ARGS)
		copy_arguments(regs, frame, cookie);
	else if (is_batch(layout))
		batch_arguments(regs, thread, frame, cookie, layout);
	else
		struct_copy(frame, call_arg(regs, 1), layout);
	if (frame->direction > COPY_UNKNOWN)
		frame->direction = COPY_UNKNOWN;
	if (frame->streamed)
		frame->stream = call_arg(regs, API_COOKIE_STREAM(cookie));
	return frame_start(regs, thread, frame);
}

static __always_inline void cuda_copy_exit(user_regs_t *regs)
{
	u64 now = bpf_ktime_get_ns();
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread_state *thread = thread_at_return(task);
	struct call_frame *frame = thread ? frame_close(regs, thread, FRAME_COPY) : NULL;
	struct call_key key = {};
	struct call_stats *stats;
	s32 result;
	int failed;

	if (!frame || frame->muted)
		return;
	result = (s32)USER_RESULT(regs);
	failed = result != 0 && result != CUDA_ERROR_NOT_READY;
	if (frame->deferred && !failed)
		batch_size(thread, frame, API_COOKIE_LAYOUT(frame->cookie), 1);
	call_key_of(&key, thread, frame);
	stats = account_call(thread, &key, now - frame->start_ns, frame->size, result, failed);
	if (stats && !failed && !frame->unsized)
		add_to(&stats->sizes[size_bucket(frame->size)], 1);
	if (frame->streamed) {
		frame->comm = 0;
		send_call(task, &key, thread, frame, NULL, 0, now - frame->start_ns,
			  failed ? 0 : frame->size, result, failed);
	}
}

CALL_PROGRAMS(cuda_copy)
