# SPDX-License-Identifier: Apache-2.0
"""Off-CPU spans of a recording, against the sleeps that the threads themselves measured."""
import contextlib
import json
import subprocess
import sys

from harness.container import stub
from harness.host import stubs
from harness.recording import query, value
from harness.waiting import wait_until

MILLISECOND = 1_000_000
# Of the clock that a row is converted by, and of what runs between the clock and the sleep.
TOLERANCE = 5 * MILLISECOND
THRESHOLD = 15 * MILLISECOND
SLEEPS = [40, 5, 25, 60]  # milliseconds; the second is below the threshold

# A thread other than the first sleeps, and says when by its own clock.
SLEEPER = """
import ctypes, json, sys, threading, time
for library in sys.argv[2:]:
    ctypes.CDLL(library)
print("loaded", flush=True)
sys.stdin.readline()
slept = []
def now():
    return time.clock_gettime_ns(time.CLOCK_REALTIME)
def work():
    for milliseconds in json.loads(sys.argv[1]):
        begin = now()
        time.sleep(milliseconds / 1000)
        slept.append((milliseconds, begin, now()))
    slept.append(threading.get_native_id())
worker = threading.Thread(target=work)
worker.start()
worker.join()
print(json.dumps({"tid": slept.pop(), "slept": slept}), flush=True)
sys.stdin.readline()
"""


@contextlib.contextmanager
def sleeper(*libraries):
    process = subprocess.Popen([sys.executable, "-c", SLEEPER, json.dumps(SLEEPS), *libraries],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.wait(10)


@contextlib.contextmanager
def watching_agent(host, *flags):
    """The scheduler is watched while some process maps a traced library: here from the start on."""
    with sleeper(stub("libcudart.so.13")):
        yield host.agent(*flags)


def let_sleep(processes):
    """What each of them says about its sleeps."""
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    return [json.loads(process.stdout.readline()) for process in processes]


def wait_known(agent, *processes):
    wait_until(lambda: {process.pid for process in processes}
               <= {row["pid"] for row in agent.state()["processes"]}, "the processes known")


def spans_of(file, tid):
    return query(file, f"SELECT * FROM sched_events WHERE event = 'off_cpu' AND tid = {tid} "
                       "ORDER BY timestamp_ns")


def test_spans_are_the_sleeps_that_the_thread_measured_and_other_programs_have_none(
        host, tmp_path):
    file = tmp_path / "x.db"
    with watching_agent(host, "--out", file, "--off-cpu-threshold", "15ms") as agent, \
            sleeper(stub("libcudart.so.13")) as traced, sleeper() as other:
        wait_known(agent, traced)
        said, _ = let_sleep([traced, other])
        assert agent.stop()[0] == 0
    spans = spans_of(file, said["tid"])
    assert all(span["duration_ns"] >= THRESHOLD for span in spans)
    for milliseconds, begin, end in said["slept"]:
        inside = [span for span in spans if begin - TOLERANCE <= span["timestamp_ns"]
                  and span["timestamp_ns"] + span["duration_ns"] <= end + TOLERANCE]
        if milliseconds * MILLISECOND < THRESHOLD:
            assert not inside or end - begin >= THRESHOLD, (milliseconds, inside)
            continue
        assert len(inside) == 1, (milliseconds, begin, end, spans)
        span = inside[0]
        print(f"slept {(end - begin) / 1e6:.3f} ms, recorded {span['duration_ns'] / 1e6:.3f} ms")
        assert milliseconds * MILLISECOND - TOLERANCE <= span["duration_ns"] <= end - begin
        assert span["pid"] == traced.pid and span["state"] == "interruptible"
    assert value(file, f"SELECT COUNT(*) FROM sched_events WHERE pid = {other.pid}") == 0
    assert query(file, "SELECT wait_threshold_ns, off_cpu_threshold_ns FROM recording") == [
        {"wait_threshold_ns": MILLISECOND, "off_cpu_threshold_ns": THRESHOLD}]


def test_a_recording_of_one_process_has_the_spans_of_no_other(host, tmp_path):
    file = tmp_path / "x.db"
    with sleeper(stub("libcudart.so.13")) as wanted, sleeper(stub("libcudart.so.13")) as other:
        agent = host.agent("--out", file, "--pid", wanted.pid, "--wait-threshold", "1us")
        wait_known(agent, wanted, other)
        said, _ = let_sleep([wanted, other])
        assert agent.stop()[0] == 0
    assert len(spans_of(file, said["tid"])) >= 3
    assert query(file, "SELECT DISTINCT pid FROM sched_events") == [{"pid": wanted.pid}]


def test_a_slow_collective_tells_how_long_its_thread_slept(host, tmp_path):
    file = tmp_path / "x.db"
    with watching_agent(host, "--out", file) as agent:
        asleep, busy = (host.container("allreduce", "--calls", 3, libraries=stubs(cuda=False),
                                       environment=[f"STUB_NCCL_{how}_NS=30000000"])
                        for how in ("SLEEP", "BUSY"))
        host.run(agent, asleep, busy)
        assert agent.stop()[0] == 0
    for container, least, most in ((asleep, 29 * MILLISECOND, None), (busy, 0, 0)):
        rows = query(file, "SELECT duration_ns, off_cpu_ns FROM collectives "
                           f"WHERE container = '{container.label}'")
        assert len(rows) == 3, rows
        for row in rows:
            assert row["duration_ns"] >= 30 * MILLISECOND
            assert least <= row["off_cpu_ns"] <= (row["duration_ns"] if most is None else most)


def test_without_thresholds_there_are_no_rows_and_the_file_says_so(host, tmp_path):
    file = tmp_path / "x.db"
    with watching_agent(host, "--out", file, "--off-cpu-threshold", "0",
                        "--wait-threshold", "0") as agent:
        container = host.container("allreduce", "--calls", 3, libraries=stubs(cuda=False),
                                   environment=["STUB_NCCL_SLEEP_NS=30000000"])
        host.run(agent, container)
        assert agent.stop()[0] == 0
    assert value(file, "SELECT COUNT(*) FROM sched_events") == 0
    assert query(file, "SELECT wait_threshold_ns, off_cpu_threshold_ns FROM recording") == [
        {"wait_threshold_ns": None, "off_cpu_threshold_ns": None}]
    assert query(file, "SELECT DISTINCT off_cpu_ns, run_queue_wait_ns FROM collectives") == [
        {"off_cpu_ns": None, "run_queue_wait_ns": None}]


def test_thresholds_that_make_no_sense_are_refused(host):
    for flags, text in ((["--off-cpu-threshold", "5ms"], "nothing is recorded"),
                        (["--out", "/tmp/never.db", "--wait-threshold", "often"],
                         "read --wait-threshold (often): not a duration")):
        status, _, err = host.agent(*flags, wait=False).wait()
        assert status == 2 and text in err, err
