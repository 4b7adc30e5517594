# SPDX-License-Identifier: Apache-2.0
"""A workload in a cgroup of its own, which counts its calls itself."""
import json
import os
import signal
import subprocess

from .agent import build_dir
from .waiting import wait_until


def workload_dir():
    return os.path.join(build_dir(), "workload")


def stub(name, variant="push"):
    return os.path.join(workload_dir(), "stubs", variant, name)


class Container:
    """Options of container_run and ingero_workload; see tests/workload/README.md.

    `libraries` maps nccl, cudart, cuda to paths as the workload sees them. With `lower`, the root is
    an overlay of that directory; without, it is the host's. `label` is what the agent should call it.
    """

    def __init__(self, directory, cgroup, label, scenario, options=(), *, libraries, lower=None,
                 shares=(), environment=(), run_options=(), wait_for_start=True, hold=True):
        self.label = label
        self.cgroup = cgroup
        self.libraries = libraries
        self.directory = directory
        os.makedirs(directory)
        self.out = "/out" if lower else directory
        self._pid_file = os.path.join(directory, "pid")
        self._stderr_file = os.path.join(directory, "stderr")
        command = [os.path.join(workload_dir(), "container_run"), "--cgroup", cgroup,
                   "--pid-file", self._pid_file]
        if lower:
            command += ["--lower", lower, "--share", f"{directory}:/out"]
            command += ["--work-parent", directory]
            program = "/usr/bin/ingero_workload"
        else:
            command += ["--no-root"]
            program = os.path.join(workload_dir(), "ingero_workload")
        for share in shares:
            command += ["--share", share]
        for variable in environment:
            command += ["--env", variable]
        command += [*run_options, "--", program]
        for kind, path in libraries.items():
            command += [f"--{kind}", path]
        command += ["--scenario", scenario, *map(str, options), "--tally", f"{self.out}/tally.json",
                    "--ready-file", f"{self.out}/ready"]
        if wait_for_start:
            command += ["--start-file", f"{self.out}/start"]
        if hold:
            command += ["--hold-file", f"{self.out}/finish"]
        with open(self._stderr_file, "wb") as err:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL,
                                            stdout=subprocess.DEVNULL, stderr=err)

    @property
    def stderr(self):
        with open(self._stderr_file, encoding="utf-8", errors="replace") as file:
            return file.read()

    def path(self, name):
        return os.path.join(self.directory, name)

    def _running(self):
        status = self.process.poll()
        assert status in (None, 0), f"container ended with {status}: {self.stderr[-1000:]}"
        return status is None

    def wait_ready(self, seconds=30):
        """The workload's pid on the host, once it has loaded its libraries."""

        def ready():
            self._running()
            return os.path.exists(self.path("ready")) and os.path.getsize(self._pid_file) > 0

        wait_until(ready, f"workload of {self.label} ready", seconds)
        return self.pid

    @property
    def pid(self):
        with open(self._pid_file, encoding="utf-8") as file:
            return int(file.read())

    def start(self):
        """Lets the calls begin."""
        open(self.path("start"), "w", encoding="utf-8").close()

    def finish(self, seconds=60):
        """Lets the process go; waits for its end."""
        open(self.path("finish"), "w", encoding="utf-8").close()
        status = self.process.wait(seconds)
        assert status == 0, f"container ended with {status}: {self.stderr[-1000:]}"

    def tally(self, seconds=60):
        """The workload's own count, once its calls are done."""

        def read():
            try:
                with open(self.path("tally.json"), encoding="utf-8") as file:
                    return json.load(file)
            except (FileNotFoundError, json.JSONDecodeError):
                self._running()
                return None

        return wait_until(read, f"tally of {self.label}", seconds)

    def kill(self):
        if self.process.poll() is None:
            for name in ("start", "finish"):
                open(self.path(name), "w", encoding="utf-8").close()
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                try:
                    os.kill(self.pid, signal.SIGKILL)
                    self.process.wait(5)
                except (OSError, ValueError, subprocess.TimeoutExpired):
                    self.process.kill()
        self.process.wait(10)
