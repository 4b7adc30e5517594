# SPDX-License-Identifier: Apache-2.0
"""Libraries that come late, go, come back, or whose file is no longer there."""
import os
import shutil

import pytest

from harness.comparison import check_exact
from harness.container import stub
from harness.waiting import wait_until

SLOW = "INGERO_SLOW" in os.environ
CONFIG = "scan_interval: 500ms\ndetach_grace: 1s\n"


def own_copies(folder, names=("libnccl.so.2", "libcudart.so.13"), variant="push"):
    """{kind: path} of library files that nobody has ever mapped."""
    folder.mkdir(exist_ok=True)
    libraries = {}
    for name in names:
        shutil.copy(stub(name, variant), folder / name)
        libraries["nccl" if "nccl" in name else "cudart"] = str(folder / name)
    return libraries


def files_of(agent, folder):
    return [file for file in agent.state()["files"] if file["path"].startswith(str(folder))]


def seconds_before_dlopen():
    seconds = 60 if SLOW else 3
    print(f"dlopen after {seconds} s" + ("" if SLOW else "; INGERO_SLOW=1 makes it 60"))
    return seconds


def test_a_late_dlopen_of_an_attached_file_is_covered_from_its_first_call(host, tmp_path):
    libraries = own_copies(tmp_path / "libs")
    agent = host.agent()
    first = host.container("allreduce", lower=None, libraries=libraries)
    agent.wait_attached(first.wait_ready(), 2)
    seconds = seconds_before_dlopen()
    late = host.container("mixed", "--dlopen-after", seconds, lower=None, libraries=libraries,
                          wait_for_start=False)
    tally = late.tally(seconds + 30)
    check_exact(agent, (late, tally))


def test_a_late_dlopen_of_a_file_that_nobody_had_mapped_leaves_a_gap_that_is_measured(host, tmp_path):
    """Its calls come 2 s after its dlopen would be noticed; the gap itself is what is printed."""
    agent = host.agent()
    seconds = seconds_before_dlopen()
    gaps = []
    for i in range(3):
        libraries = own_copies(tmp_path / f"libs-{i}")
        container = host.container("allreduce", "--dlopen-after", seconds, "--seconds", 3, "--rate",
                                   1000, lower=None, libraries=libraries, wait_for_start=False)
        tally = container.tally(seconds + 40)
        files = files_of(agent, tmp_path / f"libs-{i}")
        assert len(files) == 2 and all(file["attach_ns"] > 0 for file in files), files
        gaps += [(os.path.basename(file["path"]), file["attach_ns"] / 1e6) for file in files]
        made = sum(row["calls"] for row in tally["functions"] if row["function"] == "ncclAllReduce")
        counted = agent.metrics().value("gpu_nccl_collective_count", container=container.label)
        print(f"run {i}: {made:g} calls from the first moment on, {counted:g} counted")
        assert 0.9 * made <= counted <= made
        seconds = 1
    print("mapping to probes:", ", ".join(f"{name} {ms:.1f} ms" for name, ms in gaps),
          "(target 50 ms)")
    assert all(0 < ms < 5000 for _, ms in gaps), gaps


def test_a_library_deleted_after_it_was_mapped_is_found_and_counted(host, tmp_path):
    libraries = own_copies(tmp_path / "libs")
    container = host.container("mixed", lower=None, libraries=libraries)
    pid = container.wait_ready()
    for path in libraries.values():
        os.unlink(path)
    agent = host.agent()
    agent.wait_attached(pid, 2)
    container.start()
    check_exact(agent, (container, container.tally()))


def test_a_library_replaced_by_its_next_version_is_counted_in_both(host, tmp_path):
    """As a package manager does it: the old file is unlinked while a process maps it."""
    agent = host.agent()
    libraries = own_copies(tmp_path / "libs")
    old = host.container("mixed", lower=None, libraries=libraries)
    agent.wait_attached(old.wait_ready(), 2)
    for path in libraries.values():
        os.unlink(path)
    own_copies(tmp_path / "libs", variant="endbr")
    new = host.container("mixed", lower=None, libraries=libraries)
    tallies = host.run(agent, old, new)
    check_exact(agent, (old, tallies[0]), (new, tallies[1]))
    assert len(files_of(agent, tmp_path / "libs")) == 4


def test_two_versions_side_by_side_are_counted_each(host, tmp_path):
    agent = host.agent()
    containers = [host.container("mixed", lower=None,
                                 libraries=own_copies(tmp_path / variant, variant=variant))
                  for variant in ("push", "endbr")]
    tallies = host.run(agent, *containers)
    check_exact(agent, *zip(containers, tallies))


@pytest.mark.parametrize("method", ["session", "multi", "perf"])
def test_probes_go_when_nobody_maps_the_file_and_come_back_with_it(host, tmp_path, method):
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG)
    agent = host.agent("--config", config, "--attach-method", method)
    libraries = own_copies(tmp_path / "libs", names=("libnccl.so.2",))
    pairs = []
    for _ in range(2 if method == "perf" else 3):  # closing perf probes takes half a minute
        container = host.container("allreduce", lower=None, libraries=libraries)
        pairs.append((container, host.run(agent, container)[0]))
        wait_until(lambda: not files_of(agent, tmp_path / "libs"), "probes detached", 20)
        check_exact(agent, *pairs)
    metrics = agent.metrics()
    print(f"{method}: probes attached at the end", metrics.samples.get("ingero_probes_attached", {}))
    agent.stop(seconds=200)


def test_the_second_map_of_a_file_keeps_its_probes(host, tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG)
    agent = host.agent("--config", config)
    libraries = own_copies(tmp_path / "libs")
    keeper = host.container("allreduce", lower=None, libraries=libraries)
    agent.wait_attached(keeper.wait_ready(), 2)
    first = files_of(agent, tmp_path / "libs")
    other = host.container("allreduce", lower=None, libraries=libraries)
    pairs = [(other, host.run(agent, other)[0])]
    wait_until(lambda: agent.state()["full_scans"] > 12, "a dozen scans later", 30)
    again = files_of(agent, tmp_path / "libs")
    assert [f["inode"] for f in first] == [f["inode"] for f in again]
    pairs.append((keeper, host.run(agent, keeper)[0]))
    check_exact(agent, *pairs)
