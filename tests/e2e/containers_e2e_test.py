# SPDX-License-Identifier: Apache-2.0
"""Counts belong to the container that made the calls, whatever file its overlay shows."""
import copy
import os
import secrets

from harness.comparison import check_exact, differences
from harness.host import stubs


def files_named(state, name):
    return [file for file in state["files"] if os.path.basename(file["path"]) == name]


def identity(path):
    status = os.stat(path)
    return f"{os.major(status.st_dev)}:{os.minor(status.st_dev)}", status.st_ino


def test_three_overlay_mounts_of_one_file_are_counted_each_for_its_own_container(host):
    agent = host.agent()
    containers = [host.container("allreduce", "--calls", 100 * i, "--bytes", 4096 * i,
                                 libraries=stubs(cuda=False)) for i in (1, 2, 3)]
    tallies = host.run(agent, *containers)
    assert [row["calls"] for tally in tallies for row in tally["functions"]
            if row["function"] == "ncclAllReduce"] == [100, 200, 300]
    metrics, _ = check_exact(agent, *zip(containers, tallies))
    assert metrics.by("gpu_nccl_collective_bytes_total", "container") == {
        container.label: 100 * i * 4096 * i for i, container in enumerate(containers, 1)}
    assert all(len(container.label) == 64 for container in containers)


def test_three_overlay_mounts_of_one_file_are_one_attach_of_the_real_inode(host):
    agent = host.agent()
    containers = [host.container("mixed", libraries=stubs(cuda=False)) for _ in range(3)]
    tallies = host.run(agent, *containers, finish=False)
    metrics, state = check_exact(agent, *zip(containers, tallies))
    shown = {tally["libraries"][0]["stat_device"] for tally in tallies}
    assert len(shown) == 3, f"the overlays show three devices: {shown}"
    for kind, path in stubs(cuda=False).items():
        ours = [file for file in files_named(state, os.path.basename(path)) if
                (file["device"], file["inode"]) == identity(host.stub_root() + path)]
        assert len(ours) == 1, files_named(state, os.path.basename(path))
        probed = metrics.value("ingero_probes_attached", library=kind)
        others = sum(len(file["probes"]) for file in state["files"]
                     if file["kind"] == kind and file is not ours[0])
        assert probed == len(ours[0]["probes"]) + others
        assert len({probe["offset"] for probe in ours[0]["probes"]}) == len(ours[0]["probes"])
        assert not ours[0]["refused_symbols"], ours[0]["refused_symbols"]


def test_a_file_that_a_touch_copied_up_is_a_file_of_its_own_and_counted(host):
    agent = host.agent()
    path = stubs()["nccl"]
    plain = host.container("mixed")
    touched = host.container("mixed", "--touch", path, "--calls", 2)
    tallies = host.run(agent, plain, touched, finish=False)
    _, state = check_exact(agent, (plain, tallies[0]), (touched, tallies[1]))
    inodes = {(file["device"], file["inode"]) for file in files_named(state, "libnccl.so.2")}
    copy = identity(f"/proc/{touched.pid}/root{path}")[1]
    assert identity(host.stub_root() + path) in inodes, inodes
    assert copy in {inode for _, inode in inodes}, (copy, inodes)


def test_numbers_stay_when_the_container_has_gone(host):
    agent = host.agent()
    container = host.container("mixed", "--calls", 5)
    tally = host.run(agent, container, finish=False)[0]
    assert not differences([tally], agent.metrics(), container.label)
    container.finish()
    for _ in range(3):
        assert not differences([tally], agent.metrics(), container.label)
    check_exact(agent, (container, tally))


def test_the_comparison_notices_every_number_that_is_off_by_one(host):
    """The expectation of all other tests: were it blind for a number, they would prove nothing."""
    agent = host.agent()
    container = host.container("errors")
    tally = host.run(agent, container)[0]
    metrics, state = check_exact(agent, (container, tally))
    assert len(tally["functions"]) > 60
    for i, row in enumerate(tally["functions"]):
        fields = ["calls", "unreturned", "errors"] + (["bytes"] if row["bytes"] else [])
        for field in fields:
            wrong = copy.deepcopy(tally)
            wrong["functions"][i][field] += 1
            assert differences([wrong], metrics, container.label, state), (row, field)
            if field != "errors":  # those are compared by code
                assert differences([wrong], metrics, container.label), (row, field)
        for code in row["errors_by_code"]:
            wrong = copy.deepcopy(tally)
            wrong["functions"][i]["errors_by_code"][code] += 1
            assert differences([wrong], metrics, container.label), (row, code)
        wrong = copy.deepcopy(tally)
        del wrong["functions"][i]
        assert differences([wrong], metrics, container.label), row
    assert differences([tally], metrics, "0" * 64)


def test_two_processes_of_one_container_are_summed(host):
    agent = host.agent()
    container = host.container("fork", "--processes", 3)
    tally = host.run(agent, container)[0]
    assert tally["processes"] == 4
    check_exact(agent, (container, tally))


def test_the_container_label_is_the_cgroup_path_where_no_container_is_named(host):
    agent = host.agent()
    cgroup = f"/ingero-e2e-{os.getpid()}/a-service"
    container = host.container("mixed", cgroup=cgroup)
    container.label = cgroup
    tally = host.run(agent, container)[0]
    check_exact(agent, (container, tally))


def test_names_of_container_runtimes_give_the_same_64_digits(host):
    agent = host.agent()
    pairs = []
    for i, form in enumerate(["docker/{}", "docker-{}.scope", "crio-{}.scope",
                              "kubepods/burstable/pod01234567-0123-0123-0123-0123456789a{1}/{0}"]):
        container_id = f"{i + 1:x}" * 64
        cgroup = f"/ingero-e2e-{os.getpid()}/" + form.format(container_id, i)
        container = host.container("allreduce", "--calls", 10 + i, container_id=container_id,
                                   cgroup=cgroup)
        pairs.append(container)
    tallies = host.run(agent, *pairs)
    check_exact(agent, *zip(pairs, tallies))


def test_a_cgroup_that_a_container_names_after_another_one_moves_no_counts_to_it(host):
    agent = host.agent()
    victim = host.container("allreduce", "--calls", 10)
    forger = secrets.token_hex(32)
    forged = host.container("allreduce", "--calls", 30,
                            cgroup=f"/ingero-e2e-{os.getpid()}/{forger}/{victim.label}")
    forged.label = f"{forger}/{victim.label}"
    tallies = host.run(agent, victim, forged)
    check_exact(agent, (victim, tallies[0]), (forged, tallies[1]))
