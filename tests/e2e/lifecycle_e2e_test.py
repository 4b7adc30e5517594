# SPDX-License-Identifier: Apache-2.0
"""Processes that come, fork, exec, end in odd places, and leave nothing behind."""
import json
import os
import subprocess

import pytest

from harness.comparison import check_exact, differences
from harness.container import stub, workload_dir
from harness.program import Named, run_program
from harness.waiting import wait_until

STORM = int(os.environ.get("INGERO_STORM_PROCESSES", "10000"))
LIBRARIES = {"nccl": stub("libnccl.so.2"), "cudart": stub("libcudart.so.13")}


def map_entries(agent):
    """{name: entries} of the agent's hash maps; keys are counted, not sizes."""
    maps = {}
    for fd in os.listdir(f"/proc/{agent.pid}/fdinfo"):
        try:
            with open(f"/proc/{agent.pid}/fdinfo/{fd}", encoding="ascii") as file:
                fields = dict(line.split(":", 1) for line in file.read().splitlines() if ":" in line)
        except OSError:
            continue
        if "map_id" in fields and int(fields["map_type"]) == 1:  # BPF_MAP_TYPE_HASH
            number = fields["map_id"].strip()
            shown = json.loads(subprocess.run(["bpftool", "-j", "map", "show", "id", number],
                                              capture_output=True, check=True).stdout)
            dump = subprocess.run(["bpftool", "-j", "map", "dump", "id", number],
                                  capture_output=True, check=True).stdout
            maps[shown["name"]] = len(json.loads(dump))
    return maps


def descriptors(agent):
    return len(os.listdir(f"/proc/{agent.pid}/fd"))


def resident_kib(agent):
    with open(f"/proc/{agent.pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS:"))


WATCHED = ("calls", "processes", "comms", "streams", "spare_threads", "errors", "pending",
           "unscaled")


def test_ten_thousand_short_processes_leave_the_totals_and_nothing_else(host):
    agent = host.agent()
    warm = host.container("forkstorm", "--processes", 300)
    host.run(agent, warm)
    empty = wait_until(lambda: is_quiet(agent), "the maps empty after the first storm", 30)
    before = (descriptors(agent), resident_kib(agent))
    storm = host.container("forkstorm", "--processes", STORM, "--concurrency", 16)
    tally = host.run(agent, storm, seconds=150)[0]
    assert tally["processes"] == STORM + 1, tally["processes"]
    check_exact(agent, (storm, tally))
    after_maps = wait_until(lambda: is_quiet(agent), lambda: f"maps empty: {map_entries(agent)}", 30)
    check_exact(agent, (storm, tally))
    after = (descriptors(agent), resident_kib(agent))
    print(f"{STORM} processes: maps {empty} -> {after_maps}, descriptors {before[0]} -> {after[0]}, "
          f"RSS {before[1]} -> {after[1]} KiB")
    assert after[0] <= before[0] + 2, (before, after)
    assert after[1] <= before[1] + 6 * 1024, (before, after)


def is_quiet(agent):
    """The watched maps, when no entry of a process that has ended is in them. Other processes of
    this machine may be traced too: theirs may stay."""
    agent.metrics()
    maps = map_entries(agent)
    missing = [name for name in WATCHED if name not in maps]
    assert not missing, f"maps that the agent does not hold: {missing}; it has {sorted(maps)}"
    living = len(agent.state()["processes"])
    watched = {name: maps[name] for name in WATCHED}
    return watched if all(n <= living * 150 for n in watched.values()) else None


def test_children_of_a_fork_are_counted_like_their_parent(host):
    agent = host.agent()
    container = host.container("fork", "--processes", 20, "--calls", 2)
    tally = host.run(agent, container)[0]
    assert tally["processes"] == 21
    check_exact(agent, (container, tally))


def test_no_communicator_crosses_an_exec_and_no_call_is_lost(host):
    agent = host.agent()
    container = host.container("exec")
    tally = host.run(agent, container, finish=False)[0]
    check_exact(agent, (container, tally))
    comms = [comm for comm in agent.state()["communicators"] if comm["pid"] == container.pid]
    assert comms == [], comms  # the first image's is gone with it, the second's was destroyed
    container.finish()
    check_exact(agent, (container, tally))


def test_a_pid_used_again_gets_nothing_of_the_process_that_had_it(host, tmp_path):
    agent = host.agent()
    keeper = host.container("allreduce", lower=None, libraries=LIBRARIES)
    agent.wait_attached(keeper.wait_ready(), 2)  # so that the first call of each is counted
    pid = free_pid()
    tallies = {}
    for i, (calls, scenario) in enumerate([(7, "allreduce"), (11, "memcpy"), (13, "mixed"),
                                           (17, "allreduce")]):
        container = Named()
        tally_file = tmp_path / f"tally-{i}.json"
        result = subprocess.run(container.command(
            f"{workload_dir()}/run_with_pid", pid, f"{workload_dir()}/ingero_workload", "--nccl",
            LIBRARIES["nccl"], "--cudart", LIBRARIES["cudart"], "--scenario", scenario, "--calls",
            calls, "--tally", tally_file), capture_output=True, text=True, timeout=60, check=False)
        if result.returncode == 77:
            pytest.skip(f"the kernel gives out no chosen pid: {result.stderr.strip()}")
        assert result.returncode == 0, result
        tallies[container] = json.loads(tally_file.read_text())
        assert tallies[container]["pid"] == pid
    check_exact(agent, *tallies.items())


def free_pid():
    with open("/proc/sys/kernel/pid_max", encoding="ascii") as file:
        pid = int(file.read()) - 1000
    while os.path.exists(f"/proc/{pid}"):
        pid -= 1
    return pid


def test_a_call_in_flight_when_its_process_is_killed_counts_as_one_that_did_not_return(host, tmp_path):
    agent = host.agent()
    container, tally = run_program(agent, tmp_path, "odd_calls", "killed")
    metrics, state = agent.metrics(), agent.state()
    assert metrics.value("ingero_unattributed_calls_total", reason="no_return_seen") == 3
    for row in tally["functions"]:
        row["unreturned"] = 3 if row["function"] == "ncclAllReduce" else 0
    problems = differences([tally], metrics, container.label, state)
    assert not problems, "\n".join(problems)
    assert all(n == 0 for n in state["events_lost"].values()), state["events_lost"]


def test_threads_that_end_inside_a_group_leave_no_promises_behind(host, tmp_path):
    agent = host.agent()
    container, tally = run_program(agent, tmp_path, "odd_calls", "thread_in_group")
    metrics, state = agent.metrics(), agent.state()
    problems = differences([tally], metrics, container.label, state)
    assert not problems, "\n".join(problems)
    assert all(n == 0 for n in state["events_lost"].values()), state["events_lost"]
    wait_until(lambda: map_entries(agent)["pending"] == 0,
               lambda: f"no promised communicator left: {map_entries(agent)}", 10)
