/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* What a thread's stack tells about the call that is open: whether the way back out of it still lies there. */
#ifndef INGERO_WAY_BACK_H
#define INGERO_WAY_BACK_H

#include "account.h"

#define CAN_FIND_VMA bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_find_vma) /* 5.17 */

/* Where the kernel makes probed functions of this process return to; 0: none has been probed yet. */
SHARED_FUNCTION u64 return_trampoline(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct mm_struct *mm = task->mm;

	if (!mm || !mm->uprobes_state.xol_area)
		return 0;
	return mm->uprobes_state.xol_area->vaddr;
}

struct mapping_found {
	u64 start;
	u64 end;
	u64 traced;
};

static long mapping_look(struct task_struct *task, struct vm_area_struct *vma, void *data)
{
	struct mapping_found *found = data;
	struct file *file = vma->vm_file;
	struct file_key key = {};
	struct inode *inode;

	found->start = vma->vm_start;
	found->end = vma->vm_end;
	if (!file)
		return 0;
	inode = file->f_inode;
	key.device = inode->i_sb->s_dev;
	key.generation = inode->i_generation;
	key.inode = inode->i_ino;
	found->traced = bpf_map_lookup_elem(&traced_files, &key) != NULL;
	return 0;
}

/* Whether both lie on the stack that the thread began with. */
SHARED_FUNCTION int is_thread_stack(u64 a, u64 b)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct mapping_found found = {};
	u64 begin;

	if (!CAN_FIND_VMA || bpf_find_vma(task, a, mapping_look, &found, 0))
		return 0;
	if (b < found.start || b >= found.end)
		return 0;
	begin = THREAD_POINTER(task);
	if (begin >= found.start && begin < found.end)
		return 1;
	if (!task->mm)
		return 0;
	begin = task->mm->start_stack;
	return begin >= found.start && begin < found.end;
}

/* Whether one of the two alone lies on the stack for signal handlers. */
static __always_inline int signal_stack_parts(u64 a, u64 b)
{
	struct task_struct *task = bpf_get_current_task_btf();
	u64 start = task->sas_ss_sp, size = task->sas_ss_size;

	return (a - start < size) != (b - start < size);
}

#if RETURN_ADDRESS_PUSHED

static __always_inline int way_back_lies(user_regs_t *regs, struct thread_state *thread,
					 u64 way_back)
{
	u64 address = 0;

	bpf_probe_read_user(&address, sizeof(address), (void *)thread->frame.sp);
	return address == way_back;
}

#else

#define WAY_BACK_UNREADABLE 1
#define WINDOW_BYTES (8 * BATCH_CHUNK)
#define MAX_WINDOWS 64 /* 16 KiB: the frame of one function */

/* The highest place of the open call's frame, above `bottom`, where `way_back` lies; 0: nowhere. */
SHARED_FUNCTION u64 way_back_search(struct thread_state *thread, u64 bottom, u64 way_back)
{
	u64 at, differs, hits;
	int i, j;

	if (!thread)
		return 0;
	at = thread->frame.sp;
	for (i = 0; i < MAX_WINDOWS && at > bottom; i++) {
		at -= WINDOW_BYTES;
		/* No copy is being summed up at a call's entry. */
		if (bpf_probe_read_user(thread->walk.chunk, WINDOW_BYTES, (void *)at))
			return WAY_BACK_UNREADABLE;
		hits = 0;
		for (j = 0; j < BATCH_CHUNK;
		     j++) { /* no branches: the verifier would follow each */
			differs = (thread->walk.chunk[j] ^ way_back) & RETURN_ADDRESS_MASK;
			hits |= ((differs - 1) >> 63) << j;
		}
		if (!hits)
			continue;
		at += 8 * log2_u64(hits);
		return at >= bottom ? at : 0;
	}
	return 0;
}

/* A function that calls others has put its way back into its own frame, below the stack pointer at its entry.
 * Where it lies there is the same at each of its calls, mostly. */
STATIC_FUNCTION int way_back_lies(user_regs_t *regs, struct thread_state *thread, u64 way_back)
{
	u64 sp = USER_SP(regs), entry, at, value = 0;
	/* In entry-only mode calls are counted when they begin, and nobody can be harmed. */
	int is_deeper, if_unsure = !settings.entry_only;

	if (!thread)
		return 0;
	entry = thread->frame.sp;
	is_deeper = sp < entry;
	if (return_address(regs) == way_back)
		return 1;
	if (sp == entry)
		return 0;
	if (signal_stack_parts(sp, entry)) /* it may have been interrupted before it could */
		return if_unsure;
	at = entry - thread->way_back_depth;
	if (thread->way_back_depth && (!is_deeper || at >= sp) &&
	    !bpf_probe_read_user(&value, sizeof(value), (void *)at) &&
	    !((value ^ way_back) & RETURN_ADDRESS_MASK))
		return 1;
	at = way_back_search(thread, is_deeper ? sp : 0, way_back);
	if (at > WAY_BACK_UNREADABLE) {
		thread->way_back_depth = entry - at;
		return 1;
	}
	if (is_deeper)
		return at == WAY_BACK_UNREADABLE && if_unsure;
	/* Taken for left wrongly, an open call on a lower stack would end the program: one proof more. */
	return !is_thread_stack(sp, entry) && if_unsure;
}

#endif
#endif
