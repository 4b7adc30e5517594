# SPDX-License-Identifier: Apache-2.0
"""A neighbour that floods the agent with events and mappings stops and blinds nobody."""
import pytest

from harness.container import stub, workload_dir
from harness.hostile import Attack, withstands

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
