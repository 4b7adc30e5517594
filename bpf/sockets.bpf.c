// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
/* Which processes hold which sockets of a stream over IP: one record per process (or thread with files of its
 * own) and file. A socket that several processes hold has several. */
#include "task.h"

#include <bpf/bpf_tracing.h>

#define AF_INET 2
#define AF_INET6 10
#define SOCK_STREAM 1

SEC("iter/task_file")
int held_sockets(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct socket_holder_record record = {};
	struct file *file = ctx->file;
	struct socket *socket;
	struct sock *sk;

	if (!task || !file)
		return 0;
	socket = bpf_sock_from_file(file);
	if (!socket)
		return 0;
	sk = socket->sk;
	if (!sk || sk->sk_type != SOCK_STREAM)
		return 0;
	if (sk->__sk_common.skc_family != AF_INET && sk->__sk_common.skc_family != AF_INET6)
		return 0;
	record.inode = file->f_inode->i_ino;
	record.process_start_ns = task->group_leader->start_boottime;
	record.tgid = task->tgid;
	bpf_seq_write(ctx->meta->seq, &record, sizeof(record));
	return 0;
}
