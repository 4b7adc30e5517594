/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* The kernel structures that the programs read, with only the fields in use. CO-RE relocates every
 * access to the running kernel, so one source serves both architectures and the build needs no BTF. */
#ifndef INGERO_VMLINUX_H
#define INGERO_VMLINUX_H

#include <linux/types.h>

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s32 s32;
typedef __s64 s64;

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct kernfs_node {
	const char *name;
	u64 id;
	struct kernfs_node *parent; /* up to 6.14 */
};

struct kernfs_node___rcu_parent {
	struct kernfs_node *__parent; /* from 6.15 */
};

struct cgroup {
	struct kernfs_node *kn;
};

struct cgroup_subsys_state {
	struct cgroup *cgroup;
};

struct css_set {
	struct cgroup_subsys_state *subsys[1];
	struct cgroup *dfl_cgrp; /* the v2 hierarchy */
};

struct xol_area {
	unsigned long vaddr; /* where return probes redirect to */
};

struct uprobes_state {
	struct xol_area *xol_area;
};

struct mm_struct {
	int map_count;
	unsigned long start_stack; /* of the first thread */
	struct uprobes_state uprobes_state;
};

typedef struct {
	int counter;
} atomic_t;

struct signal_struct {
	atomic_t live; /* threads that have not begun to exit */
};

struct thread_struct {
#if defined(__TARGET_ARCH_x86)
	unsigned long fsbase;
#elif defined(__TARGET_ARCH_arm64)
	struct {
		unsigned long tp_value;
	} uw;
#endif
};

struct sched_info { /* where the kernel keeps it (CONFIG_SCHED_INFO) */
	unsigned long pcount; /* how often the task has waited for a processor and got it */
	unsigned long long run_delay; /* how long in all */
};

struct task_struct {
	void *stack; /* lowest address */
	unsigned int __state;
	int pid;
	int tgid;
	u64 start_boottime;
	u64 self_exec_id; /* u32 up to 5.8; relocated by size */
	struct task_struct *group_leader;
	struct mm_struct *mm;
	struct signal_struct *signal;
	struct css_set *cgroups;
	unsigned long sas_ss_sp; /* the stack for signal handlers */
	unsigned long sas_ss_size;
	char comm[16];
	struct sched_info sched_info;
	struct thread_struct thread;
};

struct in6_addr {
	union {
		u32 u6_addr32[4];
	} in6_u;
};

struct ns_common {
	unsigned int inum;
};

struct net {
	struct ns_common ns;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct sock_common {
	u32 skc_daddr;
	u32 skc_rcv_saddr;
	u16 skc_dport;
	u16 skc_num;
	unsigned short skc_family;
	volatile unsigned char skc_state;
	possible_net_t skc_net;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
};

struct sock_cgroup_data {
	struct cgroup *cgroup;
};

struct socket;

struct sock {
	struct sock_common __sk_common;
	u16 sk_type;
	struct socket *sk_socket; /* NULL: nobody's, as before accept() and after close() */
	struct sock_cgroup_data sk_cgrp_data;
};

struct tcp_sock {
	u32 total_retrans; /* segments sent again since the connection began */
};

struct request_sock {
	struct sock_common __req_common;
};

struct sk_buff {
	char cb[48];
};

struct tcp_skb_cb {
	u32 seq;
	u16 tcp_gso_segs;
	u16 tcp_gso_size;
};

struct super_block {
	u32 s_dev;
	unsigned long s_magic;
};

struct inode {
	unsigned long i_ino;
	u32 i_generation;
	s64 i_size;
	struct super_block *i_sb;
	s64 i_mtime_sec; /* these four from 6.11 */
	s64 i_ctime_sec;
	u32 i_mtime_nsec;
	u32 i_ctime_nsec;
};

struct timespec64 {
	s64 tv_sec;
	long tv_nsec;
};

struct inode___plain_times {
	struct timespec64 i_mtime; /* up to 6.6 */
	struct timespec64 i_ctime; /* up to 6.5 */
};

struct inode___hidden_times {
	struct timespec64 __i_mtime; /* 6.7 to 6.10 */
	struct timespec64 __i_ctime; /* 6.6 to 6.10 */
};

struct path {
	void *mnt;
	void *dentry;
};

struct file {
	struct path f_path;
	struct inode *f_inode;
};

struct socket {
	struct file *file; /* NULL: the kernel's own */
	struct sock *sk;
};

struct vm_area_struct {
	unsigned long vm_start;
	unsigned long vm_end;
	unsigned long vm_flags;
	struct file *vm_file;
};

struct seq_file {
	unsigned long count;
};

struct bpf_iter_meta {
	struct seq_file *seq;
	u64 session_id;
	u64 seq_num;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

struct bpf_iter__task_vma {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	struct vm_area_struct *vma;
};

struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	u32 fd;
	struct file *file;
};

#pragma clang attribute pop

enum cgroup_subsys_id {
	/* local values are replaced by the kernel's at load time */
	memory_cgrp_id = 100,
	pids_cgrp_id = 101,
};

#endif
