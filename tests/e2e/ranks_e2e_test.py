# SPDX-License-Identifier: Apache-2.0
"""Rank, size and id of communicators, for every function that makes or ends one."""
import json

from harness.comm_hash import id_hash, shrink_hash, split_hash
from harness.comparison import check_exact
from harness.host import stubs
from harness.recording import query
from harness.waiting import wait_until


def expected_hashes(comms):
    """Hash of each communicator of the `inits` scenario, None where only equality is known."""
    # The colors of its Split calls, in order; the second one (-1) makes no communicator.
    numbers_and_colors = iter([(0, 0), (2, 0), (3, 2)])
    by_pointer, hashes = {}, []
    for comm in comms:
        if comm["id_hex"]:
            value = id_hash(comm["id_hex"])
        elif comm["created_by"] == "ncclCommSplit":
            value = split_hash(by_pointer[comm["parent"]], *next(numbers_and_colors))
        elif comm["created_by"] == "ncclCommShrink":
            value = shrink_hash(by_pointer[comm["parent"]], 0)
        else:
            assert comm["created_by"] == "ncclCommInitAll"
            value = None
        by_pointer[comm["ptr"]] = value
        hashes.append(value)
    return hashes


def check_inits(found, comms):
    """`found`: (created_by or None, handle, rank, nranks, hash) in the order of `comms`."""
    hashes = expected_hashes(comms)
    assert len(found) == len(comms)
    shared = set()
    for (created_by, handle, rank, nranks, value), comm, expected in zip(found, comms, hashes):
        what = f"{comm['created_by']} {comm['ptr']}"
        assert created_by in (None, comm["created_by"]), what
        assert (handle, rank, nranks) == (comm["ptr"], comm["rank"], comm["nranks"]), what
        if expected is None:
            shared.add(value)
        else:
            assert value == f"{expected:016x}", what
    assert len(shared) == 1 and shared != {"0" * 16} and shared != {""}, shared
    makers = {comm["created_by"] for comm in comms}
    assert makers == {"ncclCommInitRank", "ncclCommInitRankConfig", "ncclCommInitRankScalable",
                      "ncclCommInitAll", "ncclCommSplit", "ncclCommShrink", "ncclCommGrow"}


def test_every_init_function_gives_rank_size_and_hash_on_each_line(host):
    agent = host.agent("--format", "json")
    for variant in ("push", "endbr"):
        container = host.container("inits", libraries=stubs(variant))
        tally = host.run(agent, container)[0]
        check_exact(agent, (container, tally))
        lines = wait_until(lambda: [line for line in map(json.loads, agent.stdout.splitlines())
                                    if line["container"] == container.label and
                                    line["function"] in ("ncclAllReduce", "ncclAllGather")],
                           "lines of the calls")
        # The scenario uses each communicator once after it was recorded, in the same order.
        for function in ("ncclAllReduce", "ncclAllGather"):
            used = [(None, line["comm"], line["rank"], line["nranks"], line["comm_id_hash"])
                    for line in lines if line["function"] == function]
            check_inits(used, tally["comms"])


def test_every_init_function_is_shown_in_debug_state_and_gone_after_its_end(host):
    agent = host.agent()
    # Slow enough to see each communicator between its first call and its end.
    container = host.container("inits", "--rate", 8, libraries=stubs(cuda=False))
    agent.wait_attached(container.wait_ready(), 2)
    container.start()
    seen, names = {}, set()
    while not container.path_exists("tally.json"):
        for comm in agent.state()["communicators"]:
            if comm["pid"] == container.pid:
                seen[comm["created_unix_ns"], comm["handle"]] = comm
        names |= {(labels["comm_name"], labels["rank"], labels["nranks"]) for labels, _ in
                  agent.metrics().series("gpu_nccl_communicator_info", container=container.label)}
    tally = container.tally()
    # Handles may be used again: the order in which they were made tells them apart.
    found, unused = [], sorted(seen.items())
    for comm in tally["comms"]:
        match = next((item for item in unused if item[1]["handle"] == comm["ptr"] and
                      item[1]["created_by"] == comm["created_by"]), None)
        assert match, f"{comm['created_by']} {comm['ptr']} was never shown: {sorted(seen)}"
        unused.remove(match)
        shown = match[1]
        assert shown["parent"] == comm["parent"], (shown, comm)
        found.append((shown["created_by"], shown["handle"], shown["rank"], shown["nranks"],
                      shown["comm_id_hash"]))
    check_inits(found, tally["comms"])
    assert not unused, f"shown but never made: {unused}"
    assert {("dp0", "5", "8"), ("later", "3", "4")} <= names, names
    assert not [comm for comm in agent.state()["communicators"] if comm["pid"] == container.pid]
    check_exact(agent, (container, tally))


def test_recorded_ends_of_communicators_say_which_one_and_only_collectives_have_numbers(host,
                                                                                        tmp_path):
    """Destroy and Abort forget the communicator when they begin: the row must know it all the same."""
    file = tmp_path / "x.db"
    agent = host.agent("--out", file)
    inits, mixed = host.container("inits"), host.container("mixed", "--calls", 3)
    comms = host.run(agent, inits, mixed)[0]["comms"]
    assert agent.stop()[0] == 0
    hashes = expected_hashes(comms)
    made = sorted((comm["ptr"], comm["rank"], comm["nranks"], f"{value:016x}" if value else "")
                  for comm, value in zip(comms, hashes))
    rows = query(file, f"SELECT op, comm, rank, nranks, comm_id_hash AS hash FROM nccl_events WHERE "
                       f"pid = {inits.pid} AND op IN ('COMM_DESTROY', 'COMM_ABORT', "
                       f"'COMM_FINALIZE')")
    known = {f"{value:016x}" for value in hashes if value}
    ends = sorted((row["comm"], row["rank"], row["nranks"],
                   row["hash"] if row["hash"] in known else "")
                  for row in rows if row["op"] != "COMM_FINALIZE")
    assert ends == made
    assert all(row["hash"] for row in rows)
    finalized = [row for row in rows if row["op"] == "COMM_FINALIZE"]
    assert [(row["comm"], row["rank"], row["nranks"]) for row in finalized] == [
        (comms[0]["ptr"], 2, 4)]
    numbered = query(file, "SELECT op, MIN(sequence) AS first, COUNT(*) - COUNT(sequence) AS without "
                           "FROM nccl_events GROUP BY op")
    collectives = {"ALL_REDUCE", "ALL_GATHER", "REDUCE_SCATTER", "BROADCAST", "REDUCE", "GATHER",
                   "SCATTER", "ALL_TO_ALL"}
    assert collectives | {"SEND", "RECV", "GROUP_END"} <= {row["op"] for row in numbered}
    for row in numbered:
        assert (row["first"] is not None) == (row["op"] in collectives), row
        assert row["op"] not in collectives or row["without"] == 0, row
    numbers = [row["sequence"] for row in query(
        file, f"SELECT sequence FROM nccl_events WHERE pid = {mixed.pid} AND sequence IS NOT NULL "
              f"ORDER BY timestamp_ns")]
    assert numbers == list(range(1, len(numbers) + 1))


def test_ids_that_share_their_first_bytes_have_different_hashes(host):
    agent = host.agent("--format", "json")
    container = host.container("inits")
    tally = host.run(agent, container)[0]
    ids = {comm["id_hex"] for comm in tally["comms"][:3]}
    assert len(ids) == 3 and len({text[:16] for text in ids}) == 1
    agent.stop()
    hashes = [line["comm_id_hash"] for line in map(json.loads, agent.stdout.splitlines())
              if line["function"] == "ncclAllReduce" and line["container"] == container.label][:3]
    assert sorted(hashes) == sorted(f"{id_hash(text):016x}" for text in ids)
    assert len(set(hashes)) == 3


def test_one_id_has_the_same_hash_in_the_processes_of_two_containers(host, tmp_path):
    agent = host.agent()
    (tmp_path / "ids").mkdir()
    containers = [host.container("allreduce", "--seconds", 60, "--rate", 50, "--nranks", 2,
                                 "--rank", rank, "--id-file", "/ids/id", "--comm-name", "tp",
                                 shares=[f"{tmp_path}/ids:/ids"]) for rank in (0, 1)]
    for container in containers:
        agent.wait_attached(container.wait_ready(), 3)
    for container in containers:
        container.start()
    pids = {container.pid: (container.label, rank) for rank, container in enumerate(containers)}

    def both():
        found = [comm for comm in agent.state()["communicators"] if comm["pid"] in pids and
                 comm["collectives"] > 5]
        return found if len(found) == 2 else None

    comms = wait_until(both, "two communicators in use")
    assert {(comm["container"], comm["rank"]) for comm in comms} == set(pids.values())
    assert [comm["nranks"] for comm in comms] == [2, 2]
    id_hex = (tmp_path / "ids" / "id").read_bytes().hex()
    assert {comm["comm_id_hash"] for comm in comms} == {f"{id_hash(id_hex):016x}"}
    metrics = agent.metrics()
    for container, rank in ((containers[0], "0"), (containers[1], "1")):
        info = metrics.series("gpu_nccl_communicator_info", container=container.label)
        assert [(labels["comm_id"], labels["rank"], labels["nranks"], labels["libnccl_version"])
                for labels, value in info] == [(f"{id_hash(id_hex):016x}", rank, "2", "2.28.9")]
    for container in containers:
        container.terminate()
    tallies = [container.tally() for container in containers]
    assert {comm["id_hex"] for tally in tallies for comm in tally["comms"]} == {id_hex}
    check_exact(agent, *zip(containers, tallies))
    assert not [comm for comm in agent.state()["communicators"] if comm["pid"] in pids]


def test_collectives_of_a_communicator_are_numbered_and_dated(host):
    agent = host.agent()
    container = host.container("allreduce", "--seconds", 60, "--rate", 100)
    agent.wait_attached(container.wait_ready(), 3)
    container.start()

    def sequence():
        return agent.metrics().value("gpu_nccl_communicator_collectives_total",
                                     container=container.label)

    wait_until(lambda: sequence() > 20, "20 collectives")
    metrics = agent.metrics()
    calls = metrics.value("gpu_nccl_collective_count", container=container.label)
    assert abs(metrics.value("gpu_nccl_communicator_collectives_total",
                             container=container.label) - calls) <= 1
    now = agent.state()["unix_ns"] / 1e9
    last = metrics.value("gpu_nccl_communicator_last_enqueue_timestamp_seconds",
                         container=container.label)
    assert now - 5 < last <= now, (last, now)
    container.terminate()
    check_exact(agent, (container, container.tally()))
