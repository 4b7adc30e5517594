# SPDX-License-Identifier: Apache-2.0
"""The figures of docs/performance.md, as a Markdown table: ratios within one run, nothing asserted.

Usage: bench.py BUILD_FOLDER [--quick] [MEASURE]...
"""
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time

BUILD = os.path.abspath(sys.argv[1])
QUICK = "--quick" in sys.argv
os.environ["INGERO_BUILD"] = BUILD
sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "e2e"))

from harness.host import Host  # noqa: E402
import quiet  # noqa: E402

PROBE_COST = os.path.join(BUILD, "bench", "probe_cost")
SWITCH_COST = os.path.join(BUILD, "bench", "switch_cost")
STUBS = os.path.join(BUILD, "workload", "stubs")
CUDART = os.path.join(STUBS, "push", "libcudart.so.13")
TICK = os.sysconf("SC_CLK_TCK")
BPFTRACE = ("uprobe:{lib}:cudaMemcpy {{ @s[tid] = nsecs; }} "
            "uretprobe:{lib}:cudaMemcpy /@s[tid]/ {{ @ns = hist(nsecs - @s[tid]); delete(@s[tid]); }}")

rows = []


def row(what, value, goal):
    rows.append((what, value, goal))
    print(f"| {what} | {value} | {goal} |", flush=True)


def bare_cost():
    return float(subprocess.run([PROBE_COST, "--bare", CUDART], check=True, capture_output=True,
                                text=True).stdout)


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def rss_mib(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmRSS"))


class Bpftrace:
    def __enter__(self):
        self.process = subprocess.Popen(["bpftrace", "-e", BPFTRACE.format(lib=CUDART)],
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        while "Attaching" not in self.process.stdout.readline():
            assert self.process.poll() is None, "bpftrace did not start"
        time.sleep(2)

    def __exit__(self, *problem):
        # It does not see a signal that comes just before it waits for events.
        for _ in range(30):
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.communicate(timeout=2)
                return
            except subprocess.TimeoutExpired:
                pass
        self.process.kill()
        self.process.communicate()
        raise AssertionError("bpftrace did not end")


def against_bpftrace(directory):
    rounds = 2 if QUICK else 5
    plain, agents, bpftraces = [], [], []
    for _ in range(rounds):
        plain.append(bare_cost())
        with Bpftrace():
            bpftraces.append(bare_cost())
        with Host(tempfile.mkdtemp(dir=directory)) as host:
            agent = host.agent(command="agent")
            container = host.container("memcpy", "--calls", 1, libraries={"cudart": CUDART}, lower=None)
            host.run(agent, container, finish=False)  # the file is attached from here on
            agents.append(bare_cost())
            agent.stop()
    agent, other = statistics.median(agents), statistics.median(bpftraces)
    row("cost of a call: the whole agent / `bpftrace` latency histogram of the same function",
        f"{agent / other:.2f}x ({agent:.0f} ns / {other:.0f} ns; unprobed {statistics.median(plain):.0f} ns)",
        "at most 0.75x")


def nothing_lost(directory):
    seconds = 5 if QUICK else 20
    with Host(tempfile.mkdtemp(dir=directory)) as host:
        agent = host.agent(command="agent")
        container = host.container("memcpy", "--threads", 2, "--seconds", seconds,
                                   libraries={"cudart": CUDART}, lower=None)
        tally, = host.run(agent, container, finish=False, seconds=seconds + 60)
        made = sum(line["calls"] for line in tally["functions"] if "Memcpy" in line["function"])
        counted = sum(agent.metrics().by("gpu_cuda_operation_count_total", "operation",
                                         container=container.label).values())
        row(f"calls of 2 threads without pause, {seconds} s: made / counted",
            f"{made:,} / {int(counted):,}", "equal")


def agent_cpu(directory):
    seconds = 10 if QUICK else 30
    with Host(tempfile.mkdtemp(dir=directory)) as host:
        agent = host.agent(command="agent")
        container = host.container("memcpy", "--threads", 1, "--seconds", seconds + 3,
                                   libraries={"cudart": CUDART}, lower=None)
        agent.wait_attached(container.wait_ready(), 1)
        container.start()
        time.sleep(1)
        cpu, start = cpu_seconds(agent.pid), time.monotonic()
        next_scrape = start
        while time.monotonic() - start < seconds:
            if time.monotonic() >= next_scrape:
                agent.get("/metrics")
                next_scrape += 15
            time.sleep(0.5)
        share = (cpu_seconds(agent.pid) - cpu) / (time.monotonic() - start)
        tally = container.tally(60)
        made = sum(line["calls"] for line in tally["functions"] if "Memcpy" in line["function"])
        took = (tally["end_unix_ns"] - tally["start_unix_ns"]) / 1e9
        row(f"agent CPU at {made / took:,.0f} calls/s, a scrape every 15 s", f"{100 * share:.2f} % of a core",
            "at most 0.2 % at 100,000 calls/s")


def many_series(directory):
    with Host(tempfile.mkdtemp(dir=directory)) as host:
        agent = host.agent(command="agent")
        containers = [host.container("mixed") for _ in range(64)]
        host.run(agent, *containers, finish=False, seconds=120)
        agent.get("/metrics")
        times, lines = [], 0
        for _ in range(10):
            start = time.monotonic()
            _, text = agent.get("/metrics")
            times.append(time.monotonic() - start)
            lines = sum(1 for line in text.splitlines() if not line.startswith("#"))
        row(f"scrape of {lines:,} series, 64 containers", f"{1000 * statistics.median(times):.0f} ms",
            "at most 50 ms for 10,000")
        row(f"RSS with 64 processes and {lines:,} series", f"{rss_mib(agent.pid):.0f} MiB", "at most 40 MB")


def flat_cost(directory):
    counts = (1, 16, 64) if QUICK else (1, 16, 64, 256)
    costs = []
    for count in counts:
        with Host(tempfile.mkdtemp(dir=directory)) as host:
            agent = host.agent(command="agent")
            processes = [host.container("memcpy", "--calls", 10, libraries={"cudart": CUDART}, lower=None)
                         for _ in range(count)]
            host.run(agent, *processes, finish=False, seconds=120)
            costs.append(statistics.median(bare_cost() for _ in range(3)))
    row("cost of a call with " + ", ".join(map(str, counts)) + " traced processes",
        ", ".join(f"{cost:.0f} ns" for cost in costs), "flat")


def quiet_processes(directory):
    quiet.quiet_processes(directory, row, QUICK)


def mappings(directory):
    quiet.mappings(directory, row, QUICK)


def warn_about_others():
    others = subprocess.run(["pgrep", "-ax", "ingero|bpftrace"], capture_output=True, text=True,
                            check=False).stdout.split("\n")[:-1]
    if others:
        print(f"Not alone: {len(others)} other tracers run on this host, the figures are not good:\n"
              + "\n".join(others), file=sys.stderr)


def main():
    warn_about_others()
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        cpu = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), "?")
    print(f"Machine: {cpu}, {os.cpu_count()} CPUs, Linux {platform.release()}\n")
    print("Cost of a probed call (CPU time of the caller), and of a switch of tasks:\n\n```")
    sys.stdout.flush()
    if all(name.startswith("-") for name in sys.argv[2:]):
        subprocess.run([PROBE_COST, STUBS, "50" if QUICK else "300"], check=True)
        subprocess.run([SWITCH_COST, "4" if QUICK else "20"], check=True)
    print("```\n\n| figure | measured | goal |\n|---|---|---|")
    measures = (against_bpftrace, nothing_lost, agent_cpu, many_series, flat_cost,
                quiet_processes, mappings)
    only = [name for name in sys.argv[2:] if not name.startswith("-")]
    for measure in measures:
        if only and measure.__name__ not in only:
            continue
        with tempfile.TemporaryDirectory() as directory:
            measure(directory)
    if not only:
        print()
        sys.stdout.flush()
        quiet.scrape_cost()


main()
