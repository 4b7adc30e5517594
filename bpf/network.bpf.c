// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
/* TCP retransmissions, charged to the socket's cgroup and network namespace: the task of the moment is
 * whoever the timer or the packet interrupted. One count per segment, as RetransSegs of /proc/net/snmp. */
#include "task.h"

#define AF_INET 2
#define AF_INET6 10
/* From 6.17 the tracepoint also tells of attempts that came to nothing; before it has no third argument. */
const volatile unsigned int retransmit_tells_error = 0;

#define MAX_SEGMENTS 64 /* of one retransmission that are told one by one */

static __always_inline void count_retransmits(u64 cgroup_id, u32 netns, u32 family, u64 segments)
{
	struct retransmit_key key = {};
	u64 zero = 0, *counter;

	key.cgroup_id = cgroup_id;
	key.netns = netns;
	key.family = family;
	counter = bpf_map_lookup_elem(&retransmits, &key);
	if (!counter) {
		bpf_map_update_elem(&retransmits, &key, &zero, BPF_NOEXIST);
		counter = bpf_map_lookup_elem(&retransmits, &key);
	}
	if (counter)
		__sync_fetch_and_add(counter, segments);
	else
		count_loss_n(LOSS_RETRANSMITS_MAP_FULL, segments);
}

/* ::ffff:a.b.c.d is IPv4 on a socket of both. */
static __always_inline int is_mapped_ipv4(const struct in6_addr *address)
{
	return !address->in6_u.u6_addr32[0] && !address->in6_u.u6_addr32[1] &&
	       address->in6_u.u6_addr32[2] == 0xffff0000; /* in network byte order, little endian */
}

static __always_inline u32 family_of(const struct sock_common *sock)
{
	if (sock->skc_family == AF_INET6 && !is_mapped_ipv4(&sock->skc_v6_daddr))
		return AF_INET6;
	return AF_INET;
}

static __always_inline void fill_addresses(struct tcp_event *event, const struct sock_common *sock)
{
	u32 i;

	for (i = 0; i < 4; i++) {
		event->source[i] = 0;
		event->destination[i] = 0;
	}
	if (event->family == AF_INET6) {
		for (i = 0; i < 4; i++) {
			event->source[i] = sock->skc_v6_rcv_saddr.in6_u.u6_addr32[i];
			event->destination[i] = sock->skc_v6_daddr.in6_u.u6_addr32[i];
		}
		return;
	}
	event->source[0] = sock->skc_rcv_saddr;
	event->destination[0] = sock->skc_daddr;
}

/* Inode number of the file that processes hold the socket by; 0: there is none. */
static __always_inline u64 socket_inode(const struct sock *sk)
{
	struct socket *socket = sk->sk_socket;
	struct file *file;

	if (!socket)
		return 0;
	file = socket->file;
	return file ? file->f_inode->i_ino : 0;
}

static __always_inline void send_retransmit(const struct sock_common *sock, u64 cgroup_id,
					    u32 netns, u32 family, u32 seq, u32 kind, u64 inode)
{
	struct tcp_event *event = stream_reserve(sizeof(*event), LOSS_HOST_EVENT_RING_FULL);

	if (!event)
		return;
	__builtin_memset(&event->header, 0, sizeof(event->header));
	event->header.kind = EVENT_TCP_RETRANSMIT;
	event->header.time_ns = bpf_ktime_get_ns();
	event->header.cgroup_id = cgroup_id;
	event->family = family;
	event->netns = netns;
	event->seq = seq;
	event->what = kind;
	event->state = sock->skc_state;
	event->pad = 0;
	event->pad2 = 0;
	event->socket_inode = inode;
	event->source_port = sock->skc_num;
	event->destination_port = __builtin_bswap16(sock->skc_dport);
	fill_addresses(event, sock);
	bpf_ringbuf_submit(event, stream_wakeup());
}

/* Segments of this attempt: by how much the socket's own count has grown, which the kernel raises together
 * with RetransSegs. An error does not tell: some attempts fail before they are counted, some after. */
static __always_inline u32 segments_sent(struct sock *sk, struct sk_buff *skb, s32 error)
{
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);
	u32 total, sent;
	u32 *known;
	u16 segments = 0;

	if (!tcp)
		return 0;
	total = tcp->total_retrans;
	known = bpf_sk_storage_get(&retransmitted, sk, NULL, 0);
	if (known) {
		sent = total - *known;
		*known = total;
		return sent;
	}
	known = bpf_sk_storage_get(&retransmitted, sk, &total, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!known)
		count_loss(LOSS_RETRANSMITS_MAP_FULL);
	/* The first that is seen of this socket, which may be older than the agent. */
	if (error < 0)
		return 0;
	if (may_read_kernel)
		bpf_core_read(&segments, sizeof(segments),
			      &((struct tcp_skb_cb *)skb->cb)->tcp_gso_segs);
	return segments ? segments : 1;
}

SEC("tp_btf/tcp_retransmit_skb")
int tcp_retransmit(u64 *ctx)
{
	struct sock *sk = (void *)ctx[0];
	struct sk_buff *skb = (void *)ctx[1];
	const struct sock_common *sock = &sk->__sk_common;
	s32 error = retransmit_tells_error ? (s32)ctx[2] : 0;
	u32 segments = segments_sent(sk, skb, error);
	u64 cgroup_id = sk->sk_cgrp_data.cgroup->kn->id;
	u32 netns = sock->skc_net.net->ns.inum;
	u32 family = family_of(sock), seq = 0, i;
	u16 size = 0;
	u64 inode;

	if (!segments)
		return 0;
	count_retransmits(cgroup_id, netns, family, segments);
	if (!settings.stream_network)
		return 0;
	inode = socket_inode(sk);
	if (may_read_kernel) {
		bpf_core_read(&seq, sizeof(seq), &((struct tcp_skb_cb *)skb->cb)->seq);
		bpf_core_read(&size, sizeof(size), &((struct tcp_skb_cb *)skb->cb)->tcp_gso_size);
	}
	for (i = 0; i < MAX_SEGMENTS; i++) {
		if (i >= segments)
			break;
		send_retransmit(sock, cgroup_id, netns, family, seq + i * size, TCP_RETRANSMIT_SKB,
				inode);
	}
	if (segments > MAX_SEGMENTS)
		count_loss_n(LOSS_HOST_EVENT_RING_FULL, segments - MAX_SEGMENTS);
	return 0;
}

/* The answer to a connection request, which has no socket of its own yet: charged to the listener's. */
SEC("tp_btf/tcp_retransmit_synack")
int tcp_retransmit_synack(u64 *ctx)
{
	struct sock *sk = (void *)ctx[0];
	struct request_sock *request = (void *)ctx[1];
	const struct sock_common *sock = &request->__req_common;
	u64 cgroup_id = sk->sk_cgrp_data.cgroup->kn->id;
	u32 netns = sk->__sk_common.skc_net.net->ns.inum;
	u32 family = family_of(sock);

	count_retransmits(cgroup_id, netns, family, 1);
	if (settings.stream_network)
		send_retransmit(sock, cgroup_id, netns, family, 0, TCP_RETRANSMIT_SYNACK,
				socket_inode(sk));
	return 0;
}
