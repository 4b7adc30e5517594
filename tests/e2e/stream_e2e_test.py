# SPDX-License-Identifier: Apache-2.0
"""The stream of calls (--print, --format json), and what needs a certain order of calls."""
import json
import os
import signal

from harness.comparison import Expected, check_exact, differences
from harness.container import stub
from harness.host import stubs
from harness.waiting import wait_until

# The names that the contract gives, in this order, and what the agent adds behind them.
CONTRACT = ["timestamp_ns", "duration_ns", "op", "function", "pid", "tid", "container",
            "comm_id_hash", "rank", "nranks", "count", "datatype", "bytes", "result"]
ADDED = ["direction", "comm", "stream", "sequence", "group_depth", "peer", "root",
         "reduce_op", "process_start_ns", "cgroup_id"]
MILLISECOND = 1_000_000


def calls_of(agent, container):
    return [line for line in map(json.loads, agent.stdout.splitlines())
            if line["container"] == container.label]


def test_each_call_is_one_json_line_with_the_names_of_the_contract(host):
    agent = host.agent("--format", "json")
    container = host.container("mixed", "--calls", 3, "--nranks", 4, "--rank", 1)
    tally = host.run(agent, container, finish=False)[0]
    check_exact(agent, (container, tally))
    status, out, err = agent.stop()
    assert status == 0, err
    lines = [json.loads(line) for line in out.splitlines()]
    lines = [line for line in lines if line["container"] == container.label]
    expected = Expected([tally])
    assert len(lines) == expected.calls
    for line in lines:
        assert list(line) == CONTRACT + ADDED
        assert line["pid"] == line["tid"] == container.pid
        assert tally["start_unix_ns"] - MILLISECOND <= line["timestamp_ns"]
        assert line["timestamp_ns"] + line["duration_ns"] <= tally["end_unix_ns"] + MILLISECOND
        assert line["result"] == 0
    for function, row in expected.functions.items():
        ours = [line for line in lines if line["function"] == function]
        assert (len(ours), sum(line["bytes"] for line in ours)) == (row["calls"], row["bytes"]), (
            function)
    times = [line["timestamp_ns"] for line in lines]
    assert times == sorted(times), "one thread: in order"


def test_timestamps_lie_within_a_millisecond_of_the_wall_clock(host):
    agent = host.agent("--format", "json")
    container = host.container(None, lower=None, libraries={"cudart": stub("libcudart.so.13")},
                               script=[["cudart", "cudaMemcpy", 0, 0, 100 + i, 1]
                                       for i in range(200)])
    calls = host.run(agent, container)[0]
    agent.stop()
    lines = calls_of(agent, container)
    assert [line["bytes"] for line in lines] == [100 + i for i in range(200)]
    for line, call in zip(lines, calls):
        assert call["before_unix_ns"] - MILLISECOND <= line["timestamp_ns"], (line, call)
        assert line["timestamp_ns"] <= call["after_unix_ns"] + MILLISECOND, (line, call)
        assert line["duration_ns"] <= call["after_unix_ns"] - call["before_unix_ns"], (line, call)


def test_what_the_stream_drops_is_counted_while_totals_stay_exact(host):
    container = host.container("allreduce", "--calls", 400000, libraries=stubs(cuda=False))
    # --pid: what is dropped is counted for the whole host, and this is about one process.
    agent = host.agent("--format", "json", "--pid", container.wait_ready())
    agent.wait_attached(container.pid, 2)
    agent.process.send_signal(signal.SIGSTOP)  # nobody reads: the ring buffer fills
    container.start()
    tally = container.tally(120)
    agent.process.send_signal(signal.SIGCONT)
    metrics, state = agent.metrics(), agent.state()
    assert not differences([tally], metrics, container.label, state)
    dropped = metrics.value("ingero_events_lost_total", reason="call_stream_full")
    others = {labels["reason"]: value for labels, value in
              metrics.series("ingero_events_lost_total") if value}
    assert list(others) == ["call_stream_full"], others
    status, _, err = agent.stop(seconds=60)
    assert status == 0, err
    calls = Expected([tally]).calls
    with open(agent.stdout_file, "rb") as file:
        lines = sum(container.label.encode() in line and line.endswith(b"}\n") for line in file)
    os.unlink(agent.stdout_file)
    assert dropped > 0, f"{lines} lines of {calls} calls: nothing was dropped"
    assert lines + dropped == calls


def test_print_gives_one_text_line_for_each_call(host):
    agent = host.agent("--print")
    container = host.container("memcpy", "--calls", 500, libraries=stubs(cuda=False))
    tally = host.run(agent, container)[0]
    check_exact(agent, (container, tally))
    status, out, err = agent.stop()
    assert status == 0, err
    lines = [line for line in out.splitlines() if container.label[:12] in line]
    assert len(lines) == 500
    assert sum(" h2d " in line for line in lines) == 250
    assert all("cudaMemcpyAsync" in line and "1.00 MiB" in line for line in lines), lines[:3]


def script_of_barriers(steps):
    """[("AllReduce" or "sync", stream), ...] as calls of the stubs."""
    calls = [["nccl", "ncclCommInitAll", "comm out", 1, None]]
    for step, stream in steps:
        if step == "sync":
            calls.append(["cudart", "cudaStreamSynchronize", stream])
        else:
            calls.append(["nccl", f"nccl{step}", 0, 0, 10, 7, 0, "comm", stream])
    return calls


def barriers_after(host, steps):
    agent = host.agent()
    container = host.container(None, lower=None, script=script_of_barriers(steps), libraries={
        "nccl": stub("libnccl.so.2"), "cudart": stub("libcudart.so.13")})
    calls = host.run(agent, container)[0]
    assert not any(call["result"] for call in calls), calls
    metrics = agent.metrics()
    assert metrics.value("gpu_nccl_collective_count", container=container.label) == sum(
        step != "sync" for step, _ in steps)
    return metrics.by("gpu_nccl_collective_barrier_events", "op_type", container=container.label)


def test_a_synchronize_of_the_same_stream_is_a_barrier_event_of_the_collective(host):
    assert barriers_after(host, [("AllReduce", 16), ("sync", 16), ("ReduceScatter", 16),
                                 ("sync", 16), ("AllReduce", 32), ("sync", 32)]) == {
        "ncclAllReduce": 2, "ncclReduceScatter": 1}


def test_a_synchronize_of_another_stream_is_none(host):
    assert barriers_after(host, [("sync", 16), ("AllReduce", 16), ("sync", 32), ("sync", 32)]) == {
        "ncclAllReduce": 0}


def test_a_collective_is_waited_for_once(host):
    assert barriers_after(host, [("AllReduce", 16), ("sync", 16), ("sync", 16), ("AllReduce", 16),
                                 ("sync", 32)]) == {"ncclAllReduce": 1}
