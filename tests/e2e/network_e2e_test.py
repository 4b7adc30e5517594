# SPDX-License-Identifier: Apache-2.0
"""TCP retransmissions and waits for a processor, against what the kernel itself says of them."""
import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time

import pytest

from harness.container import stub, workload_dir
from harness.recording import query
from harness.waiting import wait_until

# Traced because it maps a traced library. Its folder has what it waits for and what it says.
SENDER = """
import ctypes, os, socket, sys, time
library, address, folder, holders = sys.argv[1:]
ctypes.CDLL(library)
def wait(name):
    while not os.path.exists(os.path.join(folder, name)):
        time.sleep(0.02)
def say(name):
    with open(os.path.join(folder, name), "w") as file:
        file.write(str(os.getpid()))
connection = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
connection.connect((address, 5001))
sender = os.getpid()
if holders == "two" and os.fork() == 0:
    while os.getppid() == sender:
        time.sleep(0.05)
    os._exit(0)
say("connected")
wait("go")
for _ in range(300):
    connection.sendall(b"x" * 20000)
connection.shutdown(socket.SHUT_WR)
connection.recv(1)
say("sent")
wait("end")
"""
RECEIVER = """
import socket
server = socket.create_server(("::", 5001), family=socket.AF_INET6, dualstack_ipv6=True)
print("listening", flush=True)
while True:
    connection, _ = server.accept()
    while connection.recv(65536):
        pass
    connection.close()
"""
DROP = """
table inet lossy {
  chain input {
    type filter hook input priority 0;
    tcp dport 5001 numgen random mod 10 == 0 drop
  }
}
"""


def run(*command, **more):
    return subprocess.run(command, check=True, capture_output=True, text=True, **more).stdout


@contextlib.contextmanager
def two_namespaces():
    """Names of two network namespaces with a wire between them; the second loses a tenth of it."""
    tag = secrets.token_hex(2)
    a, b = f"ingero-a{tag}", f"ingero-b{tag}"
    try:
        for name in (a, b):
            run("ip", "netns", "add", name)
        run("ip", "link", "add", f"va{tag}", "netns", a, "type", "veth", "peer", "name",
            f"vb{tag}", "netns", b)
        for name, link, last in ((a, f"va{tag}", 1), (b, f"vb{tag}", 2)):
            inside = ["ip", "-n", name]
            run(*inside, "link", "set", "lo", "up")
            run(*inside, "addr", "add", f"10.99.0.{last}/24", "dev", link)
            run(*inside, "addr", "add", f"fd99::{last}/64", "dev", link, "nodad")
            run(*inside, "link", "set", link, "up")
        run("ip", "netns", "exec", b, "nft", "-f", "-", input=DROP)
        yield a, b
    finally:
        for name in (a, b):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def retransmitted(namespace):
    """RetransSegs of /proc/net/snmp, both families together."""
    lines = [line.split() for line in
             run("ip", "netns", "exec", namespace, "cat", "/proc/net/snmp").splitlines()
             if line.startswith("Tcp:")]
    return int(dict(zip(*lines))["RetransSegs"])


@contextlib.contextmanager
def in_namespace(namespace, *command, before=()):
    """`before`: of the host's cgroups, which are not mounted inside."""
    process = subprocess.Popen([*before, "ip", "netns", "exec", namespace, *command],
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(10)


NAME = "gpu_workload_tcp_retransmits_total"


@contextlib.contextmanager
def lossy_transfer(agent, folder, address, holders="one"):
    """(container, by how much RetransSegs of the sender's namespace grew, before anybody counted)"""
    container = secrets.token_hex(32)
    run_in_cgroup = [os.path.join(workload_dir(), "container_run"), "--cgroup",
                     f"/ingero-e2e-net/{container}", "--no-root", "--"]
    with two_namespaces() as (a, b), in_namespace(b, sys.executable, "-c", RECEIVER) as receiver:
        receiver.stdout.readline()
        with in_namespace(a, sys.executable, "-c", SENDER, stub("libcudart.so.13"), address,
                          str(folder), holders, before=run_in_cgroup):
            wait_until((folder / "connected").exists, "the connection")
            wait_until(lambda: any(container in row["container"]
                                   for row in agent.state()["processes"]), "the sender known")
            before, counted = retransmitted(a), agent.metrics().value(NAME)
            (folder / "go").touch()
            wait_until((folder / "sent").exists, "all sent", 60)
            grown = retransmitted(a) - before
            assert grown > 20, "the wire lost too little to prove anything"
            yield container, grown, counted
            (folder / "end").touch()


@pytest.mark.parametrize("address, family", [("10.99.0.2", "ipv4"), ("fd99::2", "ipv6")])
def test_retransmissions_are_those_that_the_kernel_counts_and_charged_to_the_sender(
        host, tmp_path, address, family):
    agent = host.agent()
    with lossy_transfer(agent, tmp_path, address) as (container, grown, counted):
        wait_until(lambda: agent.metrics().value(NAME, container=container, family=family)
                   == counted + grown,
                   lambda: f"{counted} + {grown} of {container}: {agent.metrics().series(NAME)}")
        print(f"{grown} segments sent again over {family}")
        assert agent.metrics().value(NAME) == counted + grown, "somebody else was charged"


@pytest.mark.parametrize("address, sender, holders", [
    ("10.99.0.2", "10.99.0.1", "one"), ("fd99::2", "fd99::1", "one"),
    ("10.99.0.2", "10.99.0.1", "two")])
def test_a_recording_has_each_segment_with_addresses_container_and_the_only_process_that_holds_it(
        host, tmp_path, address, sender, holders):
    file = str(tmp_path / "x.db")
    agent = host.agent("--out", file)
    with lossy_transfer(agent, tmp_path, address, holders) as (container, grown, counted):
        pid = int((tmp_path / "sent").read_text())
        wait_until(lambda: query(file, f"SELECT 1 FROM processes WHERE pid = {pid}"),
                   "the sender among the processes of the file")
        time.sleep(0.5)  # the sender still holds its socket when the agent looks
    agent.stop()
    rows = query(file, f"""
        SELECT COUNT(*) AS segments, COUNT(DISTINCT t.seq) AS places, MIN(t.saddr) AS saddr,
               MAX(t.saddr) AS last_saddr, MIN(t.daddr) AS daddr, MIN(t.dport) AS dport,
               MIN(t.state) AS state, COUNT(t.pid) AS pids, MIN(t.pid) AS pid,
               MAX(t.pid) AS last_pid, COUNT(p.pid) AS processes
        FROM tcp_events t JOIN containers c USING (cgroup_id)
        LEFT JOIN processes p USING (pid, process_start_ns)
        WHERE t.event = 'tcp_retransmit_skb' AND c.container = '{container}'""")
    print(rows)
    assert rows[0]["segments"] == counted + grown
    assert rows[0]["saddr"] == rows[0]["last_saddr"] == sender
    assert (rows[0]["daddr"], rows[0]["dport"]) == (address, 5001)
    assert rows[0]["places"] > grown / 4
    assert rows[0]["pids"] == (rows[0]["segments"] if holders == "one" else 0)
    if holders == "one":
        assert rows[0]["pid"] == rows[0]["last_pid"] == pid
        assert rows[0]["processes"] == rows[0]["segments"], "the start of the process is wrong"


def schedstat(pid):
    """Nanoseconds that the process's threads waited for a processor, as the kernel counts them."""
    total = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/schedstat", encoding="utf-8") as file:
            total += int(file.read().split()[1])
    return total


WORKERS = """
import ctypes, sys, threading, time
ctypes.CDLL(sys.argv[1])
print("loaded", flush=True)
sys.stdin.readline()
end = time.monotonic() + 6
def work():
    while time.monotonic() < end:
        sum(range(20000))
        time.sleep(0.0005)
threads = [threading.Thread(target=work) for _ in range(8)]
[thread.start() for thread in threads]
time.sleep(1)
print("working", flush=True)
sys.stdin.readline()
"""


def test_waits_for_a_processor_are_those_that_the_kernel_counts(host):
    agent = host.agent()
    name = "gpu_workload_runqueue_wait_seconds_sum"
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"])
             for _ in range(os.cpu_count())]
    process = subprocess.Popen([sys.executable, "-c", WORKERS, stub("libcudart.so.13")],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        process.stdout.readline()
        wait_until(lambda: any(row["pid"] == process.pid for row in agent.state()["processes"]),
                   "the process known")
        before, counted_before = schedstat(process.pid), agent.metrics().value(name)
        process.stdin.write("go\n")
        process.stdin.flush()
        process.stdout.readline()
        time.sleep(4)
        # Nobody waits any more, so that both are read of one moment.
        process.send_signal(signal.SIGSTOP)
        time.sleep(0.2)
        after, counted = schedstat(process.pid), agent.metrics().value(name)
        waited, seen = (after - before) / 1e9, counted - counted_before
        print(f"8 threads waited {waited:.3f} s for a processor, the agent saw {seen:.3f} s")
        assert waited > 0.5, "too little contention to prove anything"
        assert abs(seen - waited) < 0.05 * waited
    finally:
        process.kill()
        for loop in loops:
            loop.kill()

