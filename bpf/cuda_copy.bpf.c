// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
/* Memory copies of the CUDA runtime and driver. */
#include "frame.h"

#define MAX_BATCH 512

static __always_inline u64 user_u64(u64 address)
{
	u64 value = 0;

	bpf_probe_read_user(&value, sizeof(value), (void *)address);
	return value;
}

/* width * height * depth; 0 and a counted reason when no machine can hold it. */
static __always_inline u64 volume(u64 width, u64 height, u64 depth)
{
	u64 limit = MAX_CALL_BYTES;

	if (!width || !height || !depth)
		return 0;
	if (width > limit || height > limit / width || depth > limit / (width * height)) {
		count_loss(LOSS_FORGED_SIZE);
		return 0;
	}
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
		count_loss(LOSS_ARGUMENTS_UNREADABLE);
		return;
	}
	if (user_u64(params) || user_u64(params + second_array)) {
		count_loss(LOSS_UNKNOWN_ELEMENT_SIZE);
		return;
	}
	frame->size = volume(extent.width, extent.height, extent.depth);
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
			count_loss(LOSS_ARGUMENTS_UNREADABLE);
		else
			frame->size = volume(extent.width, extent.height, 1);
		break;
	case API_LAYOUT_DRV_3D:
		from = user_u64(params + 32);
		to = user_u64(params + 120);
		frame->direction = driver_direction(from, to);
		if (read_extent(&extent, params + 176))
			count_loss(LOSS_ARGUMENTS_UNREADABLE);
		else
			frame->size = volume(extent.width, extent.height, extent.depth);
		break;
	}
	return 0;
}

SHARED_FUNCTION int batch_copy(struct call_frame *frame, u64 sizes, u64 count)
{
	u64 size, total = 0;
	u32 i;

	if (!frame)
		return 0;
	for (i = 0; i < MAX_BATCH; i++) {
		if (i >= count)
			break;
		if (bpf_probe_read_user(&size, sizeof(size), (void *)(sizes + 8 * (u64)i))) {
			count_loss(LOSS_ARGUMENTS_UNREADABLE);
			return 0;
		}
		if (size > MAX_CALL_BYTES || total > MAX_CALL_BYTES) {
			count_loss(LOSS_FORGED_SIZE);
			return 0;
		}
		total += size;
	}
	if (count > MAX_BATCH) {
		count_loss(LOSS_ARGUMENTS_UNREADABLE);
		return 0;
	}
	frame->count = count;
	frame->size = total;
	return 0;
}

/* Sums up to count operations; an array operand means elements of unknown size. */
SHARED_FUNCTION int batch_3d_copy(struct call_frame *frame, u64 operations, u64 count)
{
	struct copy_operation operation;
	u64 size, total = 0;
	u32 i;

	if (!frame)
		return 0;
	if (count > MAX_BATCH) {
		count_loss(LOSS_ARGUMENTS_UNREADABLE);
		return 0;
	}
	for (i = 0; i < MAX_BATCH; i++) {
		if (i >= count)
			break;
		if (bpf_probe_read_user(&operation, sizeof(operation),
					(void *)(operations + sizeof(operation) * (u64)i))) {
			count_loss(LOSS_ARGUMENTS_UNREADABLE);
			return 0;
		}
		if (operation.from_type != OPERAND_POINTER ||
		    operation.to_type != OPERAND_POINTER) {
			count_loss(LOSS_UNKNOWN_ELEMENT_SIZE);
			return 0;
		}
		size = volume(operation.extent.width, operation.extent.height,
			      operation.extent.depth);
		if (!size)
			return 0;
		total += size;
		if (total > MAX_CALL_BYTES) {
			count_loss(LOSS_FORGED_SIZE);
			return 0;
		}
	}
	frame->count = count;
	frame->size = total;
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

	frame->size = call_arg(regs, API_COOKIE_BYTES(cookie));
	if (factor)
		frame->size = volume(frame->size, call_arg(regs, factor), 1);
	else if (frame->size > MAX_CALL_BYTES)
		frame->size = volume(frame->size, 2, 1);
	frame->direction =
		fixed ? fixed - 1 : direction_of(call_arg(regs, API_COOKIE_TYPE(cookie)));
}

static __always_inline void batch_3d_arguments(user_regs_t *regs, struct call_frame *frame,
					       u64 cookie)
{
	u32 factor = API_COOKIE_FACTOR(cookie);

	batch_3d_copy(frame, call_arg(regs, API_COOKIE_BYTES(cookie)),
		      factor ? call_arg(regs, factor) : 1);
}

static __always_inline int cuda_copy_enter(user_regs_t *regs, u64 cookie)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread_state *thread = thread_at_entry(task);
	struct call_frame *frame =
		thread ? frame_open(regs, thread, cookie, FRAME_IF_COUNTED) : NULL;
	u32 layout = API_COOKIE_LAYOUT(cookie);

	if (!frame)
		return FRAME_SKIPPED;
	frame->count = 0;
	if (layout == API_LAYOUT_ARGS)
		copy_arguments(regs, frame, cookie);
	else if (layout == API_LAYOUT_BATCH)
		batch_copy(frame, call_arg(regs, API_COOKIE_BYTES(cookie)),
			   call_arg(regs, API_COOKIE_FACTOR(cookie)));
	else if (layout == API_LAYOUT_BATCH_3D)
		batch_3d_arguments(regs, frame, cookie);
	else
		struct_copy(frame, call_arg(regs, 1), layout);
	if (layout == API_LAYOUT_BATCH || layout == API_LAYOUT_BATCH_3D)
		frame->direction = COPY_UNKNOWN;
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
	struct call_frame *frame = thread ? frame_close(regs, thread) : NULL;
	struct call_key key = {};
	struct call_stats *stats;
	s32 result;
	int failed;

	if (!frame || frame->muted)
		return;
	result = (s32)USER_RESULT(regs);
	failed = result != 0 && result != CUDA_ERROR_NOT_READY;
	call_key_of(&key, thread, frame);
	stats = account_call(thread, &key, now - frame->start_ns, frame->size, result, failed);
	if (stats && !failed)
		add_to(&stats->sizes[size_bucket(frame->size)], 1);
	if (frame->streamed) {
		frame->comm = 0;
		send_call(task, &key, thread, frame, NULL, 0, now - frame->start_ns,
			  failed ? 0 : frame->size, result, failed);
	}
}

CALL_PROGRAMS(cuda_copy)
