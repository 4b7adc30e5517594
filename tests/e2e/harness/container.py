# SPDX-License-Identifier: Apache-2.0
"""A workload in a cgroup of its own, which counts its calls itself."""
import json
import os
import signal
import subprocess
import sys

from .agent import build_dir
from .waiting import patient, wait_until


def workload_dir():
    return os.path.join(build_dir(), "workload")


def stub(name, variant="push"):
    return os.path.join(workload_dir(), "stubs", variant, name)


class Container:
    """Options of container_run and ingero_workload; see tests/workload/README.md.

    `libraries` maps nccl, cudart, cuda to paths as the workload sees them. With `lower`, the root
    is an overlay of that directory; without, it is the host's. `label` is what the agent should
    call it. `script` replaces the workload by scripted_calls.py (host's root only).
    """

    def __init__(self, directory, cgroup, label, scenario, options=(), *, libraries, lower=None,
                 shares=(), environment=(), run_options=(), wait_for_start=True, hold=True,
                 script=None):
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
        command += [*run_options, "--"]
        if script is not None:
            command += self._scripted(script)
        else:
            command += [program, *self._workload_options(scenario, options, wait_for_start, hold)]
        with open(self._stderr_file, "wb") as err:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL,
                                            stdout=subprocess.DEVNULL, stderr=err)

    def _workload_options(self, scenario, options, wait_for_start, hold):
        arguments = [text for kind, path in self.libraries.items() for text in (f"--{kind}", path)]
        arguments += ["--scenario", scenario, *map(str, options)]
        arguments += ["--tally", f"{self.out}/tally.json", "--ready-file", f"{self.out}/ready"]
        if wait_for_start:
            arguments += ["--start-file", f"{self.out}/start"]
        if hold:
            arguments += ["--hold-file", f"{self.out}/finish"]
        return arguments

    def _scripted(self, script):
        with open(self.path("script.json"), "w", encoding="utf-8") as file:
            json.dump({"libraries": self.libraries, "calls": script}, file)
        return [sys.executable, "-B", os.path.join(os.path.dirname(__file__), "scripted_calls.py"),
                self.directory]

    @property
    def stderr(self):
        with open(self._stderr_file, encoding="utf-8", errors="replace") as file:
            return file.read()

    def path(self, name):
        return os.path.join(self.directory, name)

    def path_exists(self, name):
        self._running()
        return os.path.exists(self.path(name))

    def terminate(self):
        """Ends the calls of a workload that runs for a time; the tally follows."""
        os.kill(self.pid, signal.SIGTERM)

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
        status = self.process.wait(patient(seconds))
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
