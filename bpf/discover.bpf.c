// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
/* Which files are mapped for execution, by the kernel's own inode: one record per process and mapping. */
#include "task.h"

#include <bpf/bpf_tracing.h>

#define VM_EXEC 0x4

/* Once per process: its leader, or, where the leader has ended before its threads, any other thread. */
static __always_inline int is_representative(struct task_struct *task)
{
	return task->pid == task->tgid || !task->group_leader->mm;
}

static __always_inline int is_uninteresting(const struct mapping_record *record)
{
	struct file_key key = {
		.device = record->device,
		.generation = record->generation,
		.inode = record->inode,
	};
	struct file_version *known = bpf_map_lookup_elem(&known_files, &key);

	return known && known->size == record->version.size &&
	       known->mtime_ns == record->version.mtime_ns &&
	       known->ctime_ns == record->version.ctime_ns;
}

#define NS_PER_S 1000000000ULL
/* From 6.13 the upper bits of a ctime's nanoseconds say whether somebody has asked for it. */
#define NSEC_MASK 0x3fffffff

static __always_inline u64 to_ns(struct timespec64 *time)
{
	return time->tv_sec * NS_PER_S + time->tv_nsec;
}

static __always_inline void read_version(struct inode *inode, struct file_version *version)
{
	struct inode___plain_times *plain = (void *)inode;
	struct inode___hidden_times *hidden = (void *)inode;

	version->size = inode->i_size;
	if (bpf_core_field_exists(inode->i_ctime_sec)) {
		version->mtime_ns = inode->i_mtime_sec * NS_PER_S + inode->i_mtime_nsec;
		version->ctime_ns =
			inode->i_ctime_sec * NS_PER_S + (inode->i_ctime_nsec & NSEC_MASK);
		return;
	}
	version->mtime_ns = bpf_core_field_exists(plain->i_mtime) ? to_ns(&plain->i_mtime)
								  : to_ns(&hidden->__i_mtime);
	version->ctime_ns = bpf_core_field_exists(plain->i_ctime) ? to_ns(&plain->i_ctime)
								  : to_ns(&hidden->__i_ctime);
}

/* Memory of the record: larger than the BPF stack. */
struct record_map {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct mapping_record);
};
struct record_map mapping_scratch SEC(".maps");

/* By typed loads, one character each: they work under lockdown=confidentiality too. */
static __always_inline void copy_comm(char *to, struct task_struct *task)
{
	u32 i;

	for (i = 0; i < sizeof(task->comm); i++)
		to[i] = task->comm[i];
}

SEC("iter/task_vma")
int mapped_files(struct bpf_iter__task_vma *ctx)
{
	struct vm_area_struct *vma = ctx->vma;
	struct task_struct *task = ctx->task;
	struct mapping_record *record;
	struct inode *inode;
	struct file *file;
	u32 zero = 0;
	long size;

	if (!task || !vma)
		return 0;
	file = vma->vm_file;
	if (!file || !(vma->vm_flags & VM_EXEC) || !is_representative(task))
		return 0;
	record = bpf_map_lookup_elem(&mapping_scratch, &zero);
	if (!record)
		return 0;
	inode = file->f_inode;
	record->device = inode->i_sb->s_dev;
	record->generation = inode->i_generation;
	record->inode = inode->i_ino;
	record->file_system = inode->i_sb->s_magic;
	read_version(inode, &record->version);
	if (is_uninteresting(record))
		return 0;
	record->process_start_ns = task->group_leader->start_boottime;
	record->cgroup_id = task_cgroup_id(task);
	record->vm_start = vma->vm_start;
	record->vm_end = vma->vm_end;
	record->tgid = task->tgid;
	record->tid = task->pid;
	copy_comm(record->comm, task->group_leader);
	size = bpf_d_path(&file->f_path, record->path, sizeof(record->path));
	record->path_size = size > 0 ? size : 0;
	bpf_seq_write(ctx->meta->seq, record, sizeof(*record));
	return 0;
}
