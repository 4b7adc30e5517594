# SPDX-License-Identifier: Apache-2.0
"""Hostile neighbours: an attack runs in a container of its own while victims make a known number of calls.

    attack = Attack(host, tmp_path, workload_dir() + "/hostile", "{ready}", "comms", library)
    withstands(host, agent, attack)

`withstands` is the promise in one place: victims exact, agent alive and answering, memory below the chart's
limit, SIGTERM obeyed while the attack goes on.
"""
import os
import secrets
import signal
import subprocess
import time

from .comparison import differences, lost
from .container import workload_dir
from .waiting import wait_until

CHART_MEMORY_LIMIT = 512 << 20
STOP_SECONDS = 5
ANSWER_SECONDS = 5


class Attack:
    """A command in a container with the host's root. "{ready}" in it is a file that the program makes, with its
    pid, once the attack is on; without, the attack is on when it has started. `limits` go to prlimit
    (such as "--as=2000000000"): an attack must not take the machine down."""

    def __init__(self, host, directory, *command, limits=("--as=8000000000",), wait=True):
        self.label = secrets.token_hex(32)
        self.ready = os.path.join(directory, f"ready-{self.label[:8]}")
        self._out = os.path.join(directory, f"attack-{self.label[:8]}.out")
        command = [str(part).replace("{ready}", self.ready) for part in command]
        self._tells_ready = self.ready in command
        with open(self._out, "wb") as out:
            self.process = subprocess.Popen(
                ["prlimit", *limits, os.path.join(workload_dir(), "container_run"), "--cgroup",
                 f"/ingero-e2e-{os.getpid()}/{self.label}", "--no-root", "--", *command],
                stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
        host._started.append(self)
        if wait:
            self.wait_ready()

    @property
    def output(self):
        with open(self._out, encoding="utf-8", errors="replace") as file:
            return file.read()

    def wait_ready(self, seconds=60):
        def is_ready():
            self.check_on()
            return not self._tells_ready or os.path.exists(self.ready)

        wait_until(is_ready, "the attack is on", seconds)

    @property
    def pid(self):
        with open(self.ready, encoding="utf-8") as file:
            return int(file.read())

    def check_on(self):
        status = self.process.poll()
        assert status is None, f"the attack ended with {status}: {self.output[-1000:]}"

    def kill(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self._kill_cgroup()
                self.process.kill()
        self.process.wait(20)

    def _kill_cgroup(self):
        with subprocess.Popen(["pgrep", "-P", str(self.process.pid)], stdout=subprocess.PIPE) as found:
            children = found.communicate()[0].split()
        for child in children:
            try:
                os.kill(int(child), signal.SIGKILL)
            except ProcessLookupError:
                pass


def peak_memory(agent):
    """The agent's highest resident memory until now, in bytes."""
    with open(f"/proc/{agent.pid}/status", encoding="utf-8") as file:
        for line in file:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) << 10
    raise AssertionError("no VmHWM")


def check_answers(agent, seconds=ANSWER_SECONDS):
    """Each page comes in time."""
    took = {}
    for path in ("/healthz", "/readyz", "/metrics"):
        began = time.monotonic()
        status, text = agent.get(path, timeout=seconds)
        took[path] = time.monotonic() - began
        assert status == 200, (path, status, text[:200])
    return took


def run_victim(host, agent, calls=200, scenario="allreduce"):
    """A container that starts now, is found, and makes its calls; what differs from its own tally."""
    victim = host.container(scenario, "--calls", calls)
    tally = host.run(agent, victim)[0]
    problems = differences([tally], agent.metrics(), victim.label, agent.state())
    assert not problems, "the victim's counts differ:\n" + "\n".join(problems[:20])
    return victim


def check_stops(agent, seconds=STOP_SECONDS):
    """SIGTERM is obeyed in time."""
    began = time.monotonic()
    agent.process.send_signal(signal.SIGTERM)
    try:
        status = agent.process.wait(seconds)
    except subprocess.TimeoutExpired:
        raise AssertionError(f"SIGTERM was not obeyed within {seconds} s") from None
    print(f"SIGTERM obeyed after {time.monotonic() - began:.2f} s, exit status {status}")
    return status


def withstands(host, agent, *attacks, before=None, calls=200):
    """`before`: a victim container that was attached before the attacks began, not started yet. Its calls and
    those of one that comes during the attacks are exact."""
    for attack in attacks:
        attack.check_on()
    began = time.monotonic()
    if before is not None:
        before.start()
        tally = before.tally()
        problems = differences([tally], agent.metrics(), before.label, agent.state())
        assert not problems, "an older victim's counts differ:\n" + "\n".join(problems[:20])
    run_victim(host, agent, calls)
    took = check_answers(agent)
    for attack in attacks:
        attack.check_on()
    peak = peak_memory(agent)
    print(f"victims exact after {time.monotonic() - began:.1f} s; peak RSS {peak >> 20} MiB; slowest page "
          f"{max(took.values()):.2f} s; lost {lost(agent.metrics())}")
    assert peak < CHART_MEMORY_LIMIT, f"peak RSS {peak >> 20} MiB"
    assert agent.process.poll() is None, agent.stderr[-2000:]
    check_stops(agent)
