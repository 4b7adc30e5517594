# SPDX-License-Identifier: Apache-2.0
"""What the agent costs where nobody calls."""
import os
import signal
import subprocess
import time

from harness.agent import Agent, build_dir
from harness.container import stub, workload_dir
from harness.waiting import wait_until

EACH = 16  # processes of a container


def cpu_ns(pid):
    """Of a process with all its threads, by its own clock: /proc counts in steps of 10 ms."""
    return time.clock_gettime_ns((~pid << 3) | 2)


class QuietProcesses:
    """Processes in containers of their own that have called every copy function in every direction, and
    now sleep."""

    def __init__(self, directory, count):
        self.done, self.pid_files, self.containers = [], [], []
        for first in range(0, count, EACH):
            self.done.append(os.path.join(directory, f"done-{first}"))
            self.pid_files.append(os.path.join(directory, f"pid-{first}"))
            self.containers.append(subprocess.Popen(
                [os.path.join(workload_dir(), "container_run"), "--cgroup",
                 f"/ingero-bench-{os.getpid()}/{first:064x}", "--no-root", "--pid-file",
                 self.pid_files[-1], "--", os.path.join(build_dir(), "bench", "quiet_calls"),
                 stub("libcudart.so.13"), stub("libcuda.so.1"), str(min(EACH, count - first)),
                 self.done[-1]]))

    def __enter__(self):
        def done():
            return sum(map(os.path.exists, self.done))
        wait_until(lambda: done() == len(self.done), lambda: f"{done()} containers have called", 300)
        return self

    def __exit__(self, *problem):
        for name in self.pid_files:
            with open(name, encoding="utf-8") as file:
                os.kill(int(file.read()), signal.SIGKILL)  # its children go with it
        for process in self.containers:
            process.wait(30)


def share(agent, seconds, scrape_every=None):
    """Of a core, in percent."""
    cpu, start = cpu_ns(agent.pid), time.monotonic()
    next_scrape = start
    while time.monotonic() - start < seconds:
        if scrape_every and time.monotonic() >= next_scrape:
            agent.get("/metrics")
            next_scrape += scrape_every
        time.sleep(0.25)
    return 100 * (cpu_ns(agent.pid) - cpu) / 1e9 / (time.monotonic() - start)


def quiet_processes(directory, row, quick):
    seconds = 20 if quick else 60
    for count in (64, 1008):
        config = os.path.join(directory, "config.yaml")
        with open(config, "w", encoding="utf-8") as file:
            file.write("map_entries: 262144\n")
        place = os.path.join(directory, str(count))
        os.makedirs(place)
        agent = Agent(directory, "--config", config, command="agent", recorded=False)
        try:
            agent.wait_ready()
            with QuietProcesses(place, count):
                time.sleep(12)  # what has just begun is looked at more often
                alone = share(agent, seconds)
                row(f"agent CPU beside {count:,} quiet processes that have called",
                    f"{alone:.2f} % of a core", "at most 0.1 %")
                row(f"the same with {count:,}, a scrape every 15 s",
                    f"{share(agent, seconds, 15):.2f} % of a core", "")
        finally:
            agent.kill()


def mapping_cost(*arguments):
    return float(subprocess.run([os.path.join(build_dir(), "bench", "mapping_cost"), *arguments], check=True,
                                capture_output=True, text=True).stdout)


def mappings(directory, row, quick):
    """Rounds without and with an agent, in turn."""
    execs = "300" if quick else "3000"
    measures = {"map": ("map", os.path.realpath("/bin/bash")), "exec": ("exec", execs, "/bin/true")}
    found = {(what, traced): [] for what in measures for traced in (False, True)}
    for _ in range(3 if quick else 7):
        for traced in (False, True):
            agent = Agent(directory, command="agent", recorded=False) if traced else None
            try:
                if agent:
                    agent.wait_ready()
                    time.sleep(1)
                for what, arguments in measures.items():
                    found[what, traced].append(mapping_cost(*arguments))
            finally:
                if agent:
                    agent.kill()

    def text(what, traced, unit):
        times = sorted(found[what, traced])
        return f"{times[0]:.0f} {unit} (median {times[len(times) // 2]:.0f})"
    row("a kept executable mapping: without, with an agent", f"{text('map', False, 'ns')}, {text('map', True, 'ns')}",
        "at most 1 us more")
    row("an exec, CPU time: without, with an agent", f"{text('exec', False, 'us')}, {text('exec', True, 'us')}",
        "at most 3 % more")


def scrape_cost():
    subprocess.run([os.path.join(build_dir(), "bench", "scrape_cost")], check=True)
