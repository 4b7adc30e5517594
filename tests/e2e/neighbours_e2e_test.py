# SPDX-License-Identifier: Apache-2.0
"""A neighbour that floods the agent with events and mappings stops and blinds nobody."""
import pytest

from harness.container import stub, workload_dir
from harness.hostile import Attack, withstands
from harness.waiting import wait_until

HOSTILE = f"{workload_dir()}/hostile"
LIBNCCL = stub("libnccl.so.2")


@pytest.fixture
def victim(host):
    """(agent, container that waits for its start), both before any attack."""
    agent = host.agent()
    container = host.container("allreduce", "--calls", 200)
    agent.wait_attached(container.wait_ready(), 3)
    return agent, container


def test_a_thread_that_makes_and_destroys_communicators_without_pause_blinds_nobody(
        host, tmp_path, victim):
    """Of a release whose layout is not known: the agent would like to look at each of them."""
    agent, container = victim
    library = f"{workload_dir()}/libhostile_nccl.so"
    floods = [Attack(host, tmp_path, HOSTILE, "{ready}", "comms", library) for _ in range(2)]
    withstands(host, agent, *floods, before=container)
    for flood in floods:
        flood.kill()
    print("communicators made:", *[flood.output.strip() for flood in floods])


def test_threads_with_files_of_their_own_and_many_mappings_blind_nobody(host, tmp_path, victim):
    agent, container = victim
    threads = Attack(host, tmp_path, HOSTILE, "{ready}", "threads", 300, 60_000)
    withstands(host, agent, threads, before=container)


def test_many_mappings_of_a_traced_file_in_many_processes_take_no_memory(host, tmp_path, victim):
    agent, container = victim
    mappings = Attack(host, tmp_path, HOSTILE, "{ready}", "mappings", LIBNCCL, 60_000, 26,
                      wait=False)
    withstands(host, agent, mappings, before=container)


def test_a_thread_that_maps_a_library_again_and_again_blinds_nobody(host, tmp_path, victim):
    agent, container = victim
    remap = Attack(host, tmp_path, HOSTILE, "{ready}", "remap", LIBNCCL)
    withstands(host, agent, remap, before=container)
    remap.kill()
    print("mapped", remap.output.strip(), "times")


def test_processes_that_execute_themselves_without_pause_blind_nobody(host, tmp_path, victim):
    agent, container = victim
    execs = [Attack(host, tmp_path, HOSTILE, "{ready}", "execs", LIBNCCL) for _ in range(2)]
    withstands(host, agent, *execs, before=container)


def test_a_library_that_a_thread_loads_after_the_main_thread_has_ended_is_traced(host, tmp_path):
    agent = host.agent()
    library = tmp_path / "libnccl.so.2"  # that nobody else maps
    library.write_bytes(open(LIBNCCL, "rb").read())
    program = Attack(host, tmp_path, HOSTILE, "{ready}", "late", library, tmp_path, 7)
    pid = program.pid

    def leader_has_ended():
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0] == "Z"

    wait_until(leader_has_ended, "the main thread has ended")
    (tmp_path / "load").touch()
    agent.wait_attached(pid, 1)
    (tmp_path / "call").touch()
    wait_until((tmp_path / "done").exists, "the calls are made")
    counted = [call["calls"] for call in agent.state()["calls"]
               if call["container"] == program.label and call["function"] == "ncclCommInitRank"]
    assert counted == [7], agent.state()["calls"]
