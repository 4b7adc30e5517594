// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
/* Which processes there are, and which files they map for execution, by the kernel's own inode. */
#include "task.h"

#include <bpf/bpf_tracing.h>

#define VM_EXEC 0x4

/* What one walk has told already. Where entries are driven out, it is told twice. */
struct told_key {
	u64 session_id;
	u64 inode; /* 0: the process */
	u32 device;
	u32 generation;
	u32 tgid;
	u32 pad;
};
struct told_map {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct told_key);
	__type(value, u8);
};
struct told_map told SEC(".maps");

/* Once per process: its leader, or, where the leader has ended before its threads, any other thread. */
static __always_inline int is_representative(struct task_struct *task)
{
	return task->pid == task->tgid || !task->group_leader->mm;
}

static __always_inline int was_told(const struct told_key *key)
{
	return bpf_map_lookup_elem(&told, key) != NULL;
}

/* Only what was written: of what found the buffer full, the kernel asks again. */
static __always_inline void write_once(struct seq_file *seq, void *record, u32 size,
				       const struct told_key *key)
{
	u8 yes = 1;

	if (!bpf_seq_write(seq, record, size))
		bpf_map_update_elem(&told, key, &yes, BPF_ANY);
}

SEC("iter/task")
int running_processes(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct process_record record = {};
	struct told_key key = {};
	struct mm_struct *mm;

	if (!task || !is_representative(task))
		return 0;
	mm = task->mm;
	if (!mm)
		return 0; /* the kernel's own, or ended */
	key.session_id = ctx->meta->session_id;
	key.tgid = task->tgid;
	if (task->pid != task->tgid && was_told(&key))
		return 0;
	record.process_start_ns = task->group_leader->start_boottime;
	record.cgroup_id = task_cgroup_id(task);
	record.tgid = task->tgid;
	record.tid = task->pid;
	record.mappings = mm->map_count;
	write_once(ctx->meta->seq, &record, sizeof(record), &key);
	return 0;
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

/* By typed loads, one character each: they work under lockdown=confidentiality too. */
static __always_inline void copy_comm(char *to, struct task_struct *task)
{
	u32 i;

	for (i = 0; i < sizeof(task->comm); i++)
		to[i] = task->comm[i];
}

/* One record per process and file: a process may map a file as often as it likes. But the reader of the walk
 * sees each of its own mappings, by which it tells files apart. On the stack, because walks run beside each
 * other. */
SEC("iter/task_vma")
int mapped_files(struct bpf_iter__task_vma *ctx)
{
	struct vm_area_struct *vma = ctx->vma;
	struct task_struct *task = ctx->task;
	struct mapping_record record;
	struct told_key key = {};
	struct inode *inode;
	struct file *file;
	long size;

	if (!task || !vma)
		return 0;
	file = vma->vm_file;
	if (!file || !(vma->vm_flags & VM_EXEC) || !is_representative(task))
		return 0;
	inode = file->f_inode;
	key.session_id = ctx->meta->session_id;
	key.inode = inode->i_ino;
	key.device = inode->i_sb->s_dev;
	key.generation = inode->i_generation;
	key.tgid = task->tgid;
	if (key.tgid != bpf_get_current_pid_tgid() >> 32 && was_told(&key))
		return 0;
	__builtin_memset(&record, 0, sizeof(record));
	record.device = key.device;
	record.generation = key.generation;
	record.inode = key.inode;
	record.file_system = inode->i_sb->s_magic;
	read_version(inode, &record.version);
	if (is_uninteresting(&record))
		return 0;
	record.process_start_ns = task->group_leader->start_boottime;
	record.cgroup_id = task_cgroup_id(task);
	record.vm_start = vma->vm_start;
	record.vm_end = vma->vm_end;
	record.tgid = task->tgid;
	record.tid = task->pid;
	copy_comm(record.comm, task->group_leader);
	size = bpf_d_path(&file->f_path, record.path, sizeof(record.path));
	record.path_size = size > 0 ? size : 0;
	write_once(ctx->meta->seq, &record, sizeof(record), &key);
	return 0;
}
