# SPDX-License-Identifier: Apache-2.0
"""Ranks that stand in a communicator's memory only: never wrong, and read without waiting for it."""
import pytest

from harness.container import workload_dir
from harness.hostile import Attack, withstands
from harness.waiting import wait_until


def shown(agent, container, seen):
    """Adds to `seen` what is shown of the container's communicators now; a later look may know more."""
    for comm in agent.state()["communicators"]:
        if comm["pid"] == container.pid:
            seen[comm["created_unix_ns"], comm["handle"]] = comm
    return seen


@pytest.mark.parametrize("library", ["forked/libnccl.so.2", "push/librccl.so.1"])
def test_a_build_that_keeps_its_ranks_elsewhere_shows_no_wrong_ones_and_is_learned(host, library):
    """It says that it is 2.28.9. One keeps other numbers where 2.28.9 has rank and size."""
    agent = host.agent()
    container = host.container("inits", "--rate", 8, libraries={"nccl": f"/stubs/{library}"})
    agent.wait_attached(container.wait_ready(), 1)
    container.start()
    seen, layouts = {}, []
    while not container.path_exists("tally.json"):
        shown(agent, container, seen)
        layouts = [layout for layout in agent.state()["communicator_layouts"]
                   if layout["container"] == container.label] or layouts
    tally = container.tally()
    made, unused, right = tally["comms"], sorted(seen.items()), 0
    for comm in made:
        match = next((item for item in unused if item[1]["handle"] == comm["ptr"] and
                      item[1]["created_by"] == comm["created_by"]), None)
        if match is None:
            continue
        unused.remove(match)
        known = match[1]["nranks"] != 0
        assert not known or (match[1]["rank"], match[1]["nranks"]) == (
            comm["rank"], comm["nranks"]), (match[1], comm)
        right += known
    print(f"{right} of {len(made)} communicators known; {layouts}")
    assert [(layout["source"], layout["rank_offset"] > 0) for layout in layouts] == [
        ("found", True)]
    metrics = agent.metrics()
    counted = sum(value for _, value in metrics.series("gpu_nccl_collective_bytes_total",
                                                       container=container.label))
    bytes_made = sum(row["bytes"] for row in tally["functions"]
                     if row["function"].startswith("nccl"))
    unknown = metrics.value("ingero_unattributed_calls_total", reason="unknown_communicator")
    assert counted <= bytes_made and (counted == bytes_made or unknown > 0)
    assert metrics.value("ingero_events_lost_total", reason="communicator_layout_wrong") == (
        1 if "forked" in library else 0)


def test_a_communicator_in_memory_that_hangs_holds_up_nobody(host, tmp_path):
    agent = host.agent()
    victim = host.container("allreduce", "--calls", 200)
    agent.wait_attached(victim.wait_ready(), 3)
    attack = Attack(host, tmp_path, f"{workload_dir()}/hostile", "{ready}", "hung",
                    f"{workload_dir()}/libhostile_nccl.so")
    wait_until(lambda: agent.metrics().value("ingero_events_lost_total",
                                             reason="communicator_read_hung") > 0,
               "a read of the attacker's memory was given up")
    withstands(host, agent, attack, before=victim)
