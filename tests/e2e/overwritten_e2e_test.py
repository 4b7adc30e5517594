# SPDX-License-Identifier: Apache-2.0
"""Libraries that get another content while they have probes."""
import os
import platform
import secrets
import shutil
import statistics
import subprocess
import time

import pytest

from harness.container import workload_dir
from harness.waiting import wait_until

STARTS = 20
OLD, NEW = (f"{workload_dir()}/overwritten/{version}.so" for version in ("old", "new"))
pytestmark = pytest.mark.skipif(platform.machine() != "x86_64",
                                reason="the two libraries are written for x86-64")


class Caller:
    """A process that calls a library so often and keeps it mapped, in a cgroup of its own."""

    def __init__(self, host, folder, library, copies):
        self.label = secrets.token_hex(32)
        ready = folder / f"ready-{self.label[:8]}"
        self.process = subprocess.Popen(
            [f"{workload_dir()}/container_run", "--cgroup", f"/ingero-e2e-{os.getpid()}/{self.label}",
             "--no-root", "--", f"{workload_dir()}/overwritten_calls", library, str(copies), ready],
            stdin=subprocess.DEVNULL)
        host._started.append(self)
        wait_until(lambda: ready.exists() and ready.read_text(), "calls done")
        self.pid = int(ready.read_text())

    def kill(self):
        try:
            os.kill(self.pid, 15)
        except ProcessLookupError:
            pass
        self.process.wait(10)


def files_of(agent, path):
    return [file for file in agent.state()["files"] if file["path"] == str(path) and file["probes"]]


def taken_off(agent):
    """How often probes were taken off because of a write; counted when they are gone."""
    return agent.metrics().value("ingero_attach_failures_total", reason="written")


def overwrite(path):
    """As cp does it; the seconds until the file was open for writing."""
    with open(NEW, "rb") as file:
        content = file.read()
    began = time.monotonic()
    with open(path, "r+b") as file:
        opened = time.monotonic() - began
        file.truncate(0)
        file.write(content)
    return opened


def check_right(path, copies=0):
    """The new library does what it says in each process, also the first one after the write."""
    statuses = [subprocess.run([f"{workload_dir()}/overwritten_calls", path, str(copies)],
                               check=False).returncode for _ in range(STARTS)]
    assert statuses == [0] * STARTS, f"harmed: {statuses}"


def prepared(host, tmp_path, *flags, grace="1h"):
    config = tmp_path / "config.yaml"
    config.write_text(f"scan_interval: 1s\ndetach_grace: {grace}\n")
    library = tmp_path / "libcudart.so.13"
    shutil.copy(OLD, library)
    agent = host.agent("--config", config, *flags)
    caller = Caller(host, tmp_path, library, 0)
    wait_until(lambda: files_of(agent, library), "probes in place")
    return agent, library, caller


@pytest.mark.parametrize("method", ["session", "multi", "perf"])
@pytest.mark.parametrize("state", ["mapped", "held by the grace"])
def test_a_library_overwritten_in_place_harms_nobody_and_is_traced_anew(host, tmp_path, method, state):
    agent, library, caller = prepared(host, tmp_path, "--attach-method", method)
    if state != "mapped":
        caller.kill()
        wait_until(lambda: not [p for p in agent.state()["processes"] if p["pid"] == caller.pid],
                   "nobody maps it")
    before = files_of(agent, library)[0]
    opened = overwrite(library)
    check_right(library)
    print(f"{method}, {state}: the writer waited {opened * 1e3:.1f} ms")
    # Until it is looked into again, one process may be missed; then all are counted.
    keeper = Caller(host, tmp_path, library, 0)
    wait_until(lambda: files_of(agent, library), "its new content attached")
    after = files_of(agent, library)[0]
    assert after["inode"] == before["inode"]
    assert {p["offset"] for p in after["probes"]} != {p["offset"] for p in before["probes"]}
    again = Caller(host, tmp_path, library, 37)
    assert agent.metrics().value("gpu_cuda_operation_count_total", container=again.label,
                                 operation="cudaMemcpy") == 37
    check_right(library)
    assert keeper.process.poll() is None
    assert agent.metrics().value("ingero_attach_failures_total", reason="written") >= 1


def test_a_writer_waits_for_the_probes_no_longer_than_they_take_to_go(host, tmp_path):
    """Measured for docs/limitations.md."""
    agent, library, _ = prepared(host, tmp_path)
    seconds = []
    for _ in range(10):
        wait_until(lambda: files_of(agent, library), "attached", 30)
        seconds.append(overwrite(library))
        assert not files_of(agent, library), "the probes are gone before the file is open"
    print(f"a writer waited {statistics.median(seconds) * 1e3:.1f} ms (median), "
          f"{max(seconds) * 1e3:.1f} ms (most)")
    assert max(seconds) < 10  # the kernel would let it go on after 45


def test_a_library_that_is_open_for_writing_gets_no_probes_until_it_is_closed(host, tmp_path):
    agent = host.agent()
    library = tmp_path / "libcudart.so.13"
    shutil.copy(OLD, library)
    with open(library, "r+b"):
        caller = Caller(host, tmp_path, library, 0)
        wait_until(lambda: agent.metrics().value("ingero_attach_failures_total", reason="written"),
                   "refused")
        assert not files_of(agent, library)
        told = [r["message"] for r in agent.state()["refusals"] if r["reason"] == "written"]
        assert "open for writing" in told[0], told
    wait_until(lambda: files_of(agent, library), "attached once it is closed", 40)
    assert caller.process.poll() is None


def test_a_library_that_is_renamed_unlinked_or_touched_keeps_its_probes(host, tmp_path):
    agent, library, _ = prepared(host, tmp_path)
    second = Caller(host, tmp_path, library, 10)
    moved = tmp_path / "libcudart-moved.so.13"
    os.rename(library, moved)
    os.chmod(moved, 0o700)
    os.utime(moved)
    scans = agent.state()["full_scans"]
    wait_until(lambda: agent.state()["full_scans"] > scans + 2, "scanned again")
    third = Caller(host, tmp_path, moved, 20)
    metrics = agent.metrics()
    for caller, copies in ((second, 10), (third, 20)):
        assert metrics.value("gpu_cuda_operation_count_total", container=caller.label) == copies
    assert metrics.value("ingero_attach_failures_total", reason="written") == 0


def test_without_the_right_to_leases_a_write_is_noticed_after_it_has_happened(host, tmp_path):
    """Measured for docs/limitations.md: what the agent's process lacks here is CAP_LEASE."""
    config = tmp_path / "config.yaml"
    config.write_text("scan_interval: 1s\ndetach_grace: 1h\n")
    library = tmp_path / "libcudart.so.13"
    shutil.copy(OLD, library)
    os.chown(library, 12345, 12345)
    agent = host.agent("--config", config,
                       prefix=["setpriv", "--inh-caps=-lease", "--bounding-set=-lease"])
    Caller(host, tmp_path, library, 0)
    seconds = []
    for _ in range(10):
        wait_until(lambda: files_of(agent, library), "attached", 40)
        before = taken_off(agent)
        assert overwrite(library) < 1  # nobody makes it wait
        written = time.monotonic()
        # By the counter: a look at the state can miss a short while without probes.
        wait_until(lambda: taken_off(agent) > before, "probes gone", 10)
        seconds.append(time.monotonic() - written)
    print(f"from the write to the probes gone, seen through /metrics: "
          f"{statistics.median(seconds) * 1e3:.1f} ms (median), {max(seconds) * 1e3:.1f} ms (most)")
    check_right(library)
