# SPDX-License-Identifier: Apache-2.0
"""Programs of tests/e2e/programs that count their calls themselves (call_tally.h), each in a cgroup of
its own in the host's root."""
import json
import os
import secrets
import signal
import subprocess

from .container import stub, workload_dir
from .waiting import patient, wait_until


class Named:
    """A container that a test runs by itself."""

    def __init__(self):
        self.label = secrets.token_hex(32)
        self.cgroup = f"/ingero-e2e-{os.getpid()}/{self.label}"

    def command(self, *program):
        return [os.path.join(workload_dir(), "container_run"), "--cgroup", self.cgroup, "--no-root",
                "--", *map(str, program)]


class Program:
    """A scenario of a program, with the probes in place before its first call. Killed at the end of the
    block, if it has not ended."""

    def __init__(self, agent, folder, program, scenario, nccl="libnccl.so.2"):
        self.container, folder = Named(), folder / scenario
        folder.mkdir()
        self.tally_path = folder / "tally"
        self.process = subprocess.Popen(self.container.command(
            f"{workload_dir()}/{program}", scenario, stub(nccl), stub("libcudart.so.13"),
            stub("libcuda.so.1"), self.tally_path, folder / "ready", folder / "start"), stderr=subprocess.PIPE, text=True)
        self.pid = int(wait_until(lambda: _read_or_empty(folder / "ready"), f"{program} ready"))
        agent.wait_attached(self.pid, 3)
        (folder / "start").touch()

    def __enter__(self):
        return self

    def __exit__(self, *problem):
        if self.process.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
        self.process.wait(patient(10))
        self.process.stderr.close()


def run_program(agent, folder, program, scenario, seconds=90, **libraries):
    """Runs a scenario to its end; the container and its tally."""
    with Program(agent, folder, program, scenario, **libraries) as run:
        status = run.process.wait(patient(seconds))
        assert status == 0, f"status {status}: {run.process.stderr.read()}"
        return run.container, json.loads(run.tally_path.read_text())


def _read_or_empty(path):
    return path.read_text().strip() if path.exists() else ""
