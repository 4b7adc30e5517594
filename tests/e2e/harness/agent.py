# SPDX-License-Identifier: Apache-2.0
"""One run of `ingero trace`."""
import http.client
import json
import os
import signal
import socket
import subprocess

from .counter_recorder import CounterRecorder
from .exposition import Metrics
from .waiting import patient, wait_until


def build_dir():
    return os.environ.get("INGERO_BUILD") or os.path.realpath(
        os.path.join(os.path.dirname(__file__), "..", "..", "..", "build"))


def free_port(host="127.0.0.1"):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.bind((host, 0))
        return probe.getsockname()[1]


class Agent:
    def __init__(self, directory, *flags, listen=None, command="trace", environment=None,
                 recorded=True, prefix=()):
        """`listen`: what --prometheus gets, with PORT in place of a port; None: 127.0.0.1:PORT.
        `recorded`: that no counter falls is watched; not where a test counts connections.
        `prefix`: a program that becomes the agent, such as prlimit."""
        self.port = free_port()
        self.address = "::1" if listen and "[" in listen else "127.0.0.1"
        listen = (listen or "127.0.0.1:PORT").replace("PORT", str(self.port))
        self.stdout_file = os.path.join(directory, f"agent-{self.port}.out")
        self.stderr_file = os.path.join(directory, f"agent-{self.port}.err")
        self.arguments = [*prefix, os.path.join(build_dir(), "ingero"), command, "--prometheus", listen,
                          *map(str, flags)]
        with open(self.stdout_file, "wb") as out, open(self.stderr_file, "wb") as err:
            self.process = subprocess.Popen(self.arguments, stdin=subprocess.DEVNULL, stdout=out,
                                            stderr=err, env={**os.environ, **(environment or {})})
        self.recorder = CounterRecorder(self.address, self.port) if recorded else None
        if self.recorder:
            self.recorder.start()

    @property
    def pid(self):
        return self.process.pid

    @property
    def stdout(self):
        with open(self.stdout_file, encoding="utf-8", errors="replace") as file:
            return file.read()

    @property
    def stderr(self):
        with open(self.stderr_file, encoding="utf-8", errors="replace") as file:
            return file.read()

    def get(self, path, timeout=20):
        """(status, text)"""
        connection = http.client.HTTPConnection(self.address, self.port, timeout=patient(timeout))
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def wait_ready(self, seconds=30):
        def ready():
            status = self.process.poll()
            assert status is None, f"agent ended with {status}: {self.stderr[-2000:]}"
            try:
                return self.get("/readyz")[0] == 200
            except OSError:
                return False

        wait_until(ready, lambda: f"agent ready; it said: {self.stderr[-2000:]}", seconds)
        return self

    def metrics(self):
        status, text = self.get("/metrics")
        assert status == 200, (status, text[:500])
        return Metrics(text)

    def state(self):
        status, text = self.get("/debug/state")
        assert status == 200, (status, text[:500])
        return json.loads(text)

    def attached_files(self, pid, state=None):
        """Files that the process maps and that have probes, as /debug/state shows them."""
        state = state or self.state()
        mapped = {path for process in state["processes"] if process["pid"] == pid
                  for path in process["libraries"]}
        return [file for file in state["files"] if file["path"] in mapped and file["probes"]]

    def wait_attached(self, pid, libraries, seconds=30):
        """Until the process is seen to map that many libraries, and each has its probes."""

        def attached():
            state = self.state()
            mapped = [process["libraries"] for process in state["processes"]
                      if process["pid"] == pid]
            if not mapped or len(mapped[0]) < libraries:
                return False
            files = [file for file in state["files"] if file["path"] in mapped[0]]
            return len(files) >= libraries and all(file["probes"] for file in files)

        def what():
            state = self.state()
            files = [(file["path"], len(file["probes"]), file["not_attached"])
                     for file in state["files"]]
            return (f"{libraries} libraries of pid {pid} attached; "
                    f"processes {[(p['pid'], p['libraries']) for p in state['processes']]}, "
                    f"files {files}, refusals {state['refusals']}")

        wait_until(attached, what, seconds)

    def stop(self, sig=signal.SIGINT, seconds=30):
        """(exit status, stdout, stderr)"""
        if self.process.poll() is None:
            self.process.send_signal(sig)
        return self.wait(seconds)

    def wait(self, seconds=30):
        status = self.process.wait(patient(seconds))
        return status, self.stdout, self.stderr

    def kill(self):
        if self.recorder:
            self.recorder.stop()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:  # undoing hundreds of perf events; it ends by itself
            print(f"agent {self.pid}: killed 60 s ago, the kernel still removes its probes")
