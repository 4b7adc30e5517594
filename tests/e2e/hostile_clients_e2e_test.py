# SPDX-License-Identifier: Apache-2.0
"""Who reaches the agent's port can cost it neither its memory nor its descriptors nor its health."""
import resource
import socket
import threading

import pytest

from harness.comparison import check_exact
from harness.waiting import wait_until

MEGABYTE = 1 << 20
FLOOD = 250 * MEGABYTE
HEADERS = b"".join(b"X-Header-%d: y\r\n" % i for i in range(4000))
# name -> (beginning, what follows for ever)
FLOODS = {
    "request line": (b"GET /", b"a" * MEGABYTE),
    "headers": (b"GET / HTTP/1.1\r\nHost: x\r\n", HEADERS),
    "one header": (b"GET / HTTP/1.1\r\nHost: x\r\nX: ", b"a" * MEGABYTE),
    "chunks": (b"POST /metrics HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
               b"100000\r\n" + b"a" * MEGABYTE + b"\r\n"),
    "body": (b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 262144000\r\n\r\n",
             b"a" * MEGABYTE),
    "ranges": (b"GET /debug/state HTTP/1.1\r\nHost: x\r\nRange: bytes=" + b"0-," * 600
               + b"0-\r\nX: ", b"a" * MEGABYTE),
}


def peak(agent):
    """The most memory that the agent ever held."""
    with open(f"/proc/{agent.pid}/status", encoding="utf-8") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) * 1024


def connect(agent):
    return socket.create_connection(("127.0.0.1", agent.port), 20)


def flood(agent, begin, piece):
    """Sends until the agent has had enough; bytes sent."""
    sent = 0
    with connect(agent) as client:
        try:
            client.sendall(begin)
            while sent < FLOOD:
                client.sendall(piece)
                sent += len(piece)
        except OSError:
            pass
    return sent


def test_requests_without_end_are_refused_in_constant_memory(host):
    agent = host.agent()
    victim = host.container("allreduce", "--calls", 2000)
    agent.wait_attached(victim.wait_ready(), len(victim.libraries))
    agent.metrics()
    before = peak(agent)
    victim.start()
    for name, (begin, piece) in FLOODS.items():
        sent = flood(agent, begin, piece)
        print(f"{name}: {sent / MEGABYTE:.1f} MiB sent, peak {peak(agent) / MEGABYTE:.1f} MiB")
        assert sent < FLOOD, name
        assert agent.get("/healthz")[0] == 200, name
    assert peak(agent) - before < 16 * MEGABYTE
    check_exact(agent, (victim, victim.tally()))


def raise_own_limit():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 2048 <= hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (2048, hard))


def test_slow_and_silent_clients_hold_up_neither_health_nor_scans(host):
    """Four clients that drip, and 1,090 that say half a request; a container that comes meanwhile is
    found and counted."""
    raise_own_limit()
    agent = host.agent()
    idle = []
    stop = threading.Event()

    def drip():
        while not stop.wait(0.05):
            try:
                with connect(agent) as client:
                    while not stop.wait(0.05):
                        client.sendall(b"G")
            except OSError:
                pass  # its time was over, or its place taken: once more

    dripping = [threading.Thread(target=drip) for _ in range(4)]
    for thread in dripping:
        thread.start()
    try:
        for _ in range(1090):
            idle.append(connect(agent))
            idle[-1].sendall(b"GET /metrics HTTP/1.1\r\n")
        for _ in range(20):
            assert agent.get("/healthz", timeout=5)[0] == 200
        victim = host.container("mixed")
        check_exact(agent, (victim, host.run(agent, victim)[0]))
        descriptors = agent.metrics().value("process_open_fds")
        print(f"{descriptors:.0f} descriptors")
        assert descriptors < 600
        assert agent.get("/healthz", timeout=5)[0] == 200
    finally:
        stop.set()
        for client in idle:
            client.close()
        for thread in dripping:
            thread.join()
    assert agent.stop()[0] == 0


def test_many_scrapes_at_once_take_the_memory_of_a_few(host):
    agent = host.agent()
    victim = host.container("mixed")
    check_exact(agent, (victim, host.run(agent, victim)[0]))
    agent.metrics()
    before = peak(agent)
    scrapers = [connect(agent) for _ in range(60)]
    for _ in range(20):
        for scraper in scrapers:
            try:
                scraper.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            except OSError:
                continue
        assert agent.get("/healthz", timeout=5)[0] == 200
    for scraper in scrapers:
        scraper.close()
    grown = peak(agent) - before
    print(f"peak grew by {grown / MEGABYTE:.1f} MiB")
    assert grown < 32 * MEGABYTE


def test_the_descriptor_limit_is_the_highest_that_is_allowed(host):
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft_before = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, hard), hard))
    try:
        agent = host.agent("--pid", 1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft_before, hard))
    if hard == resource.RLIM_INFINITY:
        pytest.skip("no hard limit here")
    assert agent.metrics().value("process_max_fds") == hard


def test_a_client_that_takes_nothing_does_not_hold_up_the_end(host):
    agent = host.agent("--pid", 1)
    with connect(agent) as client:
        client.sendall(b"GET /debug/state HTTP/1.1\r\nHost: x\r\n\r\n" * 50)
        wait_until(lambda: agent.get("/healthz")[0] == 200, "healthy")
        assert agent.stop()[0] == 0
