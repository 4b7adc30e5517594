# SPDX-License-Identifier: Apache-2.0
"""Calls without pause: nothing is lost. INGERO_LOAD_SECONDS (5) is the time of one run."""
import contextlib
import os
import select
import subprocess
import threading
import time

import pytest

from harness.comparison import check_exact, differences

RING_CALLS = 300_000  # as many as find room in the ring of 32 MiB
SECONDS = int(os.environ.get("INGERO_LOAD_SECONDS", "5"))


def calls_of(tallies):
    return sum(row["calls"] for tally in tallies for row in tally["functions"])


@pytest.mark.parametrize("processes", [2, 16, 64])
def test_processes_that_call_without_pause_are_counted_to_the_last_call(host, tmp_path, processes):
    """One container each, all of one lower file; half of them call NCCL, half copy."""
    seconds = max(SECONDS, 30) if processes == 64 and "INGERO_SLOW" in os.environ else SECONDS
    config = tmp_path / "config.yaml"
    config.write_text("max_series: 100000\n")  # 64 containers come near the 10,000 of the default
    agent = host.agent("--config", config)
    containers = [host.container(("allreduce", "memcpy")[i % 2], "--seconds", seconds)
                  for i in range(processes)]
    tallies = host.run(agent, *containers, finish=False, seconds=seconds + 90)
    check_exact(agent, *zip(containers, tallies))
    total = calls_of(tallies)
    print(f"{processes} processes: {total} calls in {seconds} s, nothing lost")
    assert total > 0
    for container in containers:
        container.finish()
    check_exact(agent, *zip(containers, tallies))  # the same when they have ended


@pytest.mark.parametrize("method", ["session", "multi", "perf"])
def test_each_attach_method_loses_nothing_under_load(host, method):
    agent = host.agent("--attach-method", method)
    containers = [host.container(scenario, "--seconds", max(2, SECONDS // 3), "--threads", 2)
                  for scenario in ("allreduce", "memcpy")]
    tallies = host.run(agent, *containers)
    check_exact(agent, *zip(containers, tallies))
    print(f"{method}: {calls_of(tallies)} calls, nothing lost")
    began = time.monotonic()
    assert agent.stop(seconds=150)[0] == 0  # closing perf uprobes is slow on some kernels
    print(f"{method}: ended in {time.monotonic() - began:.1f} s")


def test_threads_of_one_process_are_counted_to_the_last_call(host):
    agent = host.agent()
    containers = [host.container("threads", "--threads", 16, "--calls", 20),
                  host.container("allreduce", "--threads", 8, "--seconds", SECONDS)]
    tallies = host.run(agent, *containers, seconds=120)
    check_exact(agent, *zip(containers, tallies))


def test_a_slow_reader_of_the_call_stream_costs_lines_that_are_counted_and_no_totals(host):
    """--print into a pipe that hardly anybody reads: the ring overflows."""
    agent = host.agent("--print", "--cgroup", f"/ingero-e2e-{os.getpid()}")
    agent.kill()  # its place is taken by one whose stdout is a pipe
    with subprocess.Popen([*agent.arguments], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL) as process:
        agent.process = process
        agent.wait_ready()
        containers = [host.container(scenario, "--calls", 3 * RING_CALLS // 2)
                      for scenario in ("allreduce", "memcpy")]
        for container in containers:
            agent.wait_attached(container.wait_ready(), 3)
        for container in containers:
            container.start()
        with slow_reader(process) as read:
            tallies = [container.tally(120) for container in containers]
        printed = sum(read)
        for container in containers:
            container.finish()
        printed += drain(process)
        metrics, state = agent.metrics(), agent.state()
        problems = [line for container, tally in zip(containers, tallies)
                    for line in differences([tally], metrics, container.label, state)]
        assert not problems, "\n".join(problems[:40])
        dropped = metrics.value("ingero_events_lost_total", reason="call_stream_full")
        total = calls_of(tallies)
        process.terminate()
        printed += process.stdout.read().count(b"\n")
        assert process.wait(20) == 0
    print(f"{total} calls, {printed} lines, {dropped:g} dropped and counted")
    assert dropped > 0
    others = {labels["reason"]: value for labels, value in
              metrics.series("ingero_events_lost_total") if value}
    assert set(others) == {"call_stream_full"}, others
    # One line is the header; each call is a line or a counted drop. (Drops are the whole machine's:
    # they are exactly the rest where nobody else calls.)
    assert printed - 1 <= total <= printed - 1 + dropped, (printed, dropped, total)


@contextlib.contextmanager
def slow_reader(process):
    """Reads 4 KiB every 50 ms inside; the lines of each time."""
    lines, over = [], threading.Event()

    def read():
        while not over.wait(0.05):
            if select.select([process.stdout], [], [], 0)[0]:
                lines.append(os.read(process.stdout.fileno(), 4096).count(b"\n"))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield lines
    finally:
        over.set()
        reader.join()


def drain(process):
    """Reads until nothing has come for a second; the lines."""
    lines = 0
    while select.select([process.stdout], [], [], 1.0)[0]:
        lines += os.read(process.stdout.fileno(), 1 << 20).count(b"\n")
    return lines


def test_a_reader_that_keeps_up_gets_every_call(host):
    agent = host.agent("--format", "json")
    container = host.container("allreduce", "--seconds", SECONDS, "--rate", 5000)
    tally = host.run(agent, container)[0]
    check_exact(agent, (container, tally))
    status, out, _ = agent.stop()
    assert status == 0
    lines = [line for line in out.splitlines() if '"function":"ncclAllReduce"' in line
             and container.label in line]
    assert len(lines) == sum(row["calls"] for row in tally["functions"]
                             if row["function"] == "ncclAllReduce")
