# SPDX-License-Identifier: Apache-2.0
"""Why a slow AllReduce was slow: retransmissions on a real, lossy path are found in its window."""
import contextlib
import json
import os
import re
import secrets
import sqlite3
import subprocess
import sys

import pytest

from harness.container import stub, workload_dir
from harness.recording import losses, query
from harness.waiting import wait_until
from network_e2e_test import RECEIVER, in_namespace, two_namespaces

BUSY_NS = 1_500_000_000
ATTEMPTS = 4
# Rank 0 sends over TCP while its AllReduce runs, rank 1 has a call as long and sends nothing. What the
# kernel of this network namespace has sent again is read right before and right after each call; a call
# counts once all that was sent has arrived before its end.
WORKLOAD = """
import array, ctypes, fcntl, json, os, socket, sys, termios, threading, time
library, folder, busy_ns, attempts = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
grouped = sys.argv[5] == "grouped"
class Control(ctypes.Structure):
    _fields_ = [("every", ctypes.c_ulonglong), ("busy_ns", ctypes.c_ulonglong)]
nccl = ctypes.CDLL(library)
comms = (ctypes.c_void_p * 2)()
def wait(name):
    while not os.path.exists(os.path.join(folder, name)):
        time.sleep(0.02)
def say(name):
    open(os.path.join(folder, name), "w").close()
def sent_again():
    with open("/proc/thread-self/net/snmp") as file:
        lines = [line.split() for line in file if line.startswith("Tcp:")]
    return int(dict(zip(*lines))["RetransSegs"])
def unacknowledged(connection):
    left = array.array("i", [0])
    fcntl.ioctl(connection, termios.TIOCOUTQ, left)
    return left[0]
def send(connection, until):
    before = sent_again()
    time.sleep(0.05)
    while time.monotonic() < until and sent_again() < before + 5:
        connection.sendall(b"x" * 20000)
        while unacknowledged(connection) and time.monotonic() < until:
            time.sleep(0.001)
def all_reduce(rank, connection=None):
    before = sent_again()
    row = {"rank": rank, "begin_ns": time.time_ns()}
    thread = None
    if connection:
        thread = threading.Thread(target=send, args=(connection, time.monotonic() + busy_ns / 3e9))
        thread.start()
    # In a group the call only queues, as PyTorch's do: the work is done at the group's end.
    assert not grouped or nccl.ncclGroupStart() == 0
    assert nccl.ncclAllReduce(None, None, ctypes.c_size_t(1 << 20), 7, 0,
                              ctypes.c_void_p(comms[rank]), None) == 0
    control.busy_ns = busy_ns
    assert not grouped or nccl.ncclGroupEnd() == 0
    control.busy_ns = 0 if grouped else busy_ns
    row["complete"] = connection is None or unacknowledged(connection) == 0
    row["sent_again"] = sent_again() - before
    row["end_ns"] = time.time_ns()
    if thread:
        thread.join()
    return row
say("ready")
wait("go")
assert nccl.ncclCommInitAll(comms, 2, None) == 0
connection = socket.create_connection(("10.99.0.2", 5001))
control = Control.in_dll(nccl, "stub_control")
control.busy_ns = 0 if grouped else busy_ns
rows = []
while not rows or len(rows) < attempts and not (rows[-1]["complete"] and rows[-1]["sent_again"]):
    rows.append(all_reduce(0, connection))
    while unacknowledged(connection):
        time.sleep(0.01)
rows.append(all_reduce(1))
with open(os.path.join(folder, "rows.new"), "w") as file:
    json.dump(rows, file)
os.rename(os.path.join(folder, "rows.new"), os.path.join(folder, "rows"))
wait("end")
"""


def documented_sql():
    """The query of docs/recording.md, word for word."""
    path = os.path.join(os.path.dirname(__file__), "..", "..", "docs", "recording.md")
    with open(path, encoding="utf-8") as file:
        found = re.findall(r"```sql\n(.*?)```", file.read(), re.DOTALL)
    assert len(found) == 1 and "retransmits_in_window" in found[0]
    return found[0]


def calls_made(agent, folder, kind):
    """What the workload says of its own calls, and its pid."""
    run_in_cgroup = [os.path.join(workload_dir(), "container_run"), "--cgroup",
                     f"/ingero-e2e-slow/{secrets.token_hex(32)}", "--no-root", "--"]
    with two_namespaces() as (a, b), in_namespace(b, sys.executable, "-c", RECEIVER) as receiver:
        receiver.stdout.readline()
        with in_namespace(a, sys.executable, "-c", WORKLOAD, stub("libnccl.so.2"), str(folder),
                          str(BUSY_NS), str(ATTEMPTS), kind, before=run_in_cgroup):
            wait_until((folder / "ready").exists, "the workload")
            wait_until(lambda: any(file["path"] == os.path.realpath(stub("libnccl.so.2"))
                                   and file["probes"] for file in agent.state()["files"]),
                       "probes")
            (folder / "go").touch()
            wait_until((folder / "rows").exists, "the calls", 60)
            (folder / "end").touch()
    return json.loads((folder / "rows").read_text())


@pytest.mark.parametrize("kind", ["alone", "grouped"])
def test_the_documented_query_names_the_slow_call_with_retransmissions_and_no_other(host, tmp_path,
                                                                                    kind):
    file = tmp_path / "x.db"
    agent = host.agent("--out", file)
    made = calls_made(agent, tmp_path, kind)
    assert agent.stop()[0] == 0
    assert losses(file) == {}
    noisy, quiet = made[-2:]
    assert noisy["complete"] and noisy["sent_again"] > 0, made
    assert quiet["sent_again"] == 0
    with open(tmp_path / "slow.sql", "w", encoding="utf-8") as sql:
        sql.write(documented_sql())
    answer = subprocess.run([agent.arguments[0], "query", file, "-f", tmp_path / "slow.sql",
                             "--format", "json"], capture_output=True, text=True, check=True).stdout
    rows = json.loads(answer)
    assert sorted(row["rank"] for row in rows) == sorted(row["rank"] for row in made)
    calls = query(file, "SELECT timestamp_ns, duration_ns, span_ns, rank, retransmits_in_window FROM "
                        "collectives WHERE op = 'ALL_REDUCE' ORDER BY timestamp_ns")[-2:]
    with contextlib.closing(sqlite3.connect(file)) as database:
        moments = database.execute("SELECT timestamp_ns, daddr FROM tcp_events WHERE event = "
                                   "'tcp_retransmit_skb'").fetchall()
    for call, row in zip(calls, (noisy, quiet)):
        assert call["rank"] == row["rank"]
        begin, end = call["timestamp_ns"], call["timestamp_ns"] + call["span_ns"]
        assert row["begin_ns"] - 1_000_000 <= begin <= end <= row["end_ns"] + 1_000_000
        assert call["span_ns"] == pytest.approx(BUSY_NS, rel=0.5)
        assert (call["duration_ns"] < call["span_ns"]) == (kind == "grouped")
        ours = [at for at, to in moments if begin <= at <= end and to == "10.99.0.2"]
        everybody = [at for at, _ in moments if begin <= at <= end]
        found = next(found["retransmits_in_window"] for found in rows
                     if found["ms"] == call["span_ns"] / 1e6)
        print(f"rank {call['rank']}: {row['sent_again']} by the kernel's count, {found} by SQL")
        # The query asks for the whole host; nobody else's traffic is lost here, or it is seen.
        assert (len(ours), found) == (row["sent_again"], len(everybody))
        assert call["retransmits_in_window"] == row["sent_again"]
