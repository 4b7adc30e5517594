# SPDX-License-Identifier: Apache-2.0
"""`ingero trace --out` and what is asked of its file. INGERO_LOAD_SECONDS (5) is the time of one load."""
import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import time

from harness.agent import build_dir
from harness.comparison import Expected
from harness.host import stubs
from harness.recording import all_calls, ingero, losses, query, value
from harness.waiting import wait_until

SECONDS = int(os.environ.get("INGERO_LOAD_SECONDS", "5"))
MILLISECOND = 1_000_000
SLOWEST = ("SELECT op, rank, nranks, duration_ns/1e6 AS ms FROM nccl_events "
           "ORDER BY duration_ns DESC LIMIT 20")
RETRANSMITS = "SELECT COUNT(*) FROM tcp_events WHERE event = 'tcp_retransmit_skb'"
JOIN = """
WITH slow_collectives AS (
  SELECT timestamp_ns, duration_ns, rank, nranks, comm_id_hash, pid
  FROM nccl_events WHERE op = 'ALL_REDUCE' AND duration_ns > 50000000)
SELECT s.rank, s.duration_ns/1e6 AS ms, COUNT(t.timestamp_ns) AS retransmits_in_window
FROM slow_collectives s
LEFT JOIN tcp_events t ON t.timestamp_ns BETWEEN s.timestamp_ns AND s.timestamp_ns + s.duration_ns
  AND t.event = 'tcp_retransmit_skb'
GROUP BY s.rank, s.duration_ns, s.timestamp_ns ORDER BY ms DESC LIMIT 20;
"""


def calls_of(*tallies):
    return sum(Expected([tally]).calls for tally in tallies)


def only(container):
    return "--pid", container.wait_ready()


@contextlib.contextmanager
def small_disk(path, size):
    os.mkdir(path)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", path], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", path], check=True)


def test_the_commands_of_the_documentation_answer_about_known_slow_calls(host, tmp_path):
    file = tmp_path / "nccl.db"
    slow = host.container("allreduce", "--calls", 3, "--nranks", 4, "--rank", 2,
                          libraries=stubs(cuda=False), environment=["STUB_NCCL_BUSY_NS=60000000"])
    fast = host.container("allreduce", "--calls", 300, "--nranks", 4, "--rank", 1,
                          libraries=stubs(cuda=False))
    agent = host.agent("--duration", "8s", "--out", file)
    host.run(agent, slow, fast)
    status, out, err = agent.wait()
    assert status == 0, err
    assert "lost while recording: 0" in out
    rows = query(file, SLOWEST)
    assert len(rows) == 20
    collectives = [row for row in rows if row["op"] == "ALL_REDUCE" and row["ms"] >= 60]
    assert [(row["rank"], row["nranks"]) for row in collectives] == [(2, 4)] * 3, rows
    # Those of the host, whatever else it did: network_e2e_test.py compares them with the kernel's.
    assert query(file, RETRANSMITS)[0]["COUNT(*)"] >= 0
    with contextlib.closing(sqlite3.connect(file)) as database, database:
        database.execute("DELETE FROM tcp_events")
    rows = query(file, JOIN)
    assert [(row["rank"], row["retransmits_in_window"]) for row in rows] == [(2, 0)] * 3
    # The kernel's side is put in by hand: two in the window of the second call, one outside of all.
    times = query(file, "SELECT timestamp_ns, duration_ns FROM nccl_events WHERE duration_ns > "
                        "50000000 AND op = 'ALL_REDUCE' ORDER BY timestamp_ns")
    second = times[1]
    with contextlib.closing(sqlite3.connect(file)) as database, database:
        for at in (second["timestamp_ns"], second["timestamp_ns"] + second["duration_ns"],
                   times[0]["timestamp_ns"] - 1):
            database.execute("INSERT INTO tcp_events (timestamp_ns, event) VALUES (?, ?)",
                             (at, "tcp_retransmit_skb"))
    rows = query(file, JOIN)
    assert {row["ms"]: row["retransmits_in_window"] for row in rows} == {
        row["duration_ns"] / 1e6: 2 if row is second else 0 for row in times}
    assert query(file, RETRANSMITS) == [{"COUNT(*)": 3}]


def test_each_call_is_a_row_and_json_lines_have_the_names_of_the_columns(host, tmp_path):
    file = tmp_path / "all.db"
    agent = host.agent("--format", "json", "--out", file)
    container = host.container("mixed", "--calls", 3, "--nranks", 4, "--rank", 1)
    tally = host.run(agent, container)[0]
    status, out, err = agent.stop()
    assert status == 0, err
    where = f"WHERE pid = {tally['pid']}"
    rows = {}
    for table in ("nccl_events", "cuda_events"):
        for row in query(file, f"SELECT function, COUNT(*) AS calls, COALESCE(SUM(bytes), 0) AS "
                               f"bytes FROM {table} {where} GROUP BY function"):
            rows[row["function"]] = (row["calls"], row["bytes"])
    assert rows == {function: (row["calls"], row["bytes"])
                    for function, row in Expected([tally]).functions.items()}
    lines = [line for line in map(json.loads, out.splitlines()) if line["pid"] == tally["pid"]]
    recorded = {name: query(file, f"SELECT * FROM {name} {where} ORDER BY timestamp_ns")
                for name in ("nccl_events", "cuda_events")}
    for name, events in recorded.items():
        nccl = name == "nccl_events"
        ours = [line for line in lines if line["function"].startswith("nccl") == nccl]
        assert len(events) == len(ours) > 0
        for event, line in zip(events, sorted(ours, key=lambda line: line["timestamp_ns"])):
            for later in ("group_end_ns", "span_ns"):  # not known yet when the line is written
                event.pop(later, None)
            assert set(event) <= set(line)
            for column, content in event.items():
                if content is not None:
                    assert line[column] == content, (column, line, event)
                else:
                    assert line[column] in (None, "", 0), (column, line, event)
            assert tally["start_unix_ns"] - MILLISECOND <= event["timestamp_ns"]
            assert event["timestamp_ns"] <= tally["end_unix_ns"] + MILLISECOND
    assert query(file, f"SELECT container FROM containers k JOIN processes p USING (cgroup_id) "
                       f"{where}") == [{"container": container.label}]
    assert losses(file) == {}


def test_under_load_rows_and_counted_losses_are_the_tally(host, tmp_path):
    file = tmp_path / "load.db"
    container = host.container("allreduce", "--threads", 2, "--seconds", SECONDS,
                               libraries=stubs(cuda=False))
    agent = host.agent("--out", file, *only(container))
    tally = host.run(agent, container, seconds=SECONDS + 60)[0]
    status, _, err = agent.stop(seconds=60)
    assert status == 0, err
    rows, lost, made = all_calls(file), losses(file), calls_of(tally)
    seconds = (tally["end_unix_ns"] - tally["start_unix_ns"]) / 1e9
    size = os.path.getsize(file)
    print(f"{made} calls in {seconds:.1f} s ({made / seconds:.0f} per second): {rows} rows, lost "
          f"{lost or 0}; {size / rows:.1f} bytes per call")
    assert rows + sum(lost.values()) == made
    assert size / rows < 100


def test_a_killed_recorder_leaves_what_was_committed(host, tmp_path):
    file = tmp_path / "killed.db"
    container = host.container("allreduce", "--seconds", 60, "--rate", 2000,
                               libraries=stubs(cuda=False))
    agent = host.agent("--out", file, *only(container))
    agent.wait_attached(container.wait_ready(), 2)
    container.start()
    wait_until(lambda: all_calls(file) > 1000, "a thousand rows, read while it records")
    agent.kill()
    rows = query(file, "SELECT ended_ns, end_reason, nccl_calls, updated_ns FROM recording")[0]
    assert rows["ended_ns"] is rows["end_reason"] is None
    assert rows["nccl_calls"] == all_calls(file) > 1000
    newest = value(file, "SELECT MAX(timestamp_ns) FROM nccl_events")
    assert newest <= rows["updated_ns"] + MILLISECOND
    container.terminate()


def test_a_full_disk_is_counted_and_the_file_says_so(host, tmp_path):
    with small_disk(tmp_path / "disk", "24m") as disk:
        file = disk / "full.db"
        # More than find room there, however fast the machine is.
        container = host.container("allreduce", "--threads", 2, "--calls", 800_000,
                                   libraries=stubs(cuda=False))
        agent = host.agent("--out", file, *only(container))
        tally = host.run(agent, container, seconds=120)[0]
        status, out, err = agent.stop(seconds=60)
        assert status == 1
        assert "no room left" in err and "ended early" in out
        rows, lost = all_calls(file), losses(file)
        print(f"{calls_of(tally)} calls, {rows} rows, lost {lost}")
        assert lost["disk_full"] > 0 and rows > 1000
        assert rows + sum(lost.values()) == calls_of(tally)
        assert value(file, "SELECT end_reason FROM recording") == "disk_full"


def test_a_disk_that_somebody_else_fills_is_counted(host, tmp_path):
    """All room goes at once, so that a write of SQLite itself fails."""
    with small_disk(tmp_path / "disk", "40m") as disk:
        file = disk / "full.db"
        container = host.container("allreduce", "--threads", 2, "--seconds", max(SECONDS, 6),
                                   libraries=stubs(cuda=False))
        agent = host.agent("--out", file, *only(container))
        agent.wait_attached(container.wait_ready(), 2)
        container.start()
        wait_until(lambda: all_calls(file) > 10000, "rows")
        with contextlib.suppress(OSError), open(disk / "filler", "wb") as filler:
            while True:
                filler.write(b"x" * (1 << 20))
                filler.flush()
        tally = container.tally(60)
        container.finish()
        assert agent.stop(seconds=60)[0] == 1
        rows, lost = all_calls(file), losses(file)
        print(f"{calls_of(tally)} calls, {rows} rows, lost {lost}")
        assert rows + sum(lost.values()) == calls_of(tally)
        assert value(file, "SELECT end_reason FROM recording") == "disk_full"


def test_the_size_limit_holds(host, tmp_path):
    file = tmp_path / "limited.db"
    container = host.container("allreduce", "--calls", 400_000, libraries=stubs(cuda=False))
    agent = host.agent("--out", file, "--max-size", "4MiB", *only(container))
    tally = host.run(agent, container, seconds=120)[0]
    status, out, _ = agent.stop()
    assert status == 1 and "reached its budget" in out
    assert os.path.getsize(file) <= 4 << 20
    lost = losses(file)
    assert lost["budget_reached"] > 0
    assert all_calls(file) + sum(lost.values()) == calls_of(tally)


def test_a_removed_file_is_counted_and_said(host, tmp_path):
    file = tmp_path / "removed.db"
    container = host.container("allreduce", "--calls", 5000, libraries=stubs(cuda=False))
    agent = host.agent("--out", file, *only(container))
    agent.wait_attached(container.wait_ready(), 2)
    os.unlink(file)
    container.start()
    tally = container.tally()
    container.finish()
    status, out, err = agent.stop()
    assert status == 1
    assert "was removed or replaced" in err
    assert f"lost while recording: {calls_of(tally):,} file_removed" in out, out
    assert not file.exists()


def test_a_recording_is_never_written_over(host, tmp_path):
    file = tmp_path / "taken.db"
    file.write_text("precious")
    agent = host.agent("--out", file, wait=False)
    status, _, err = agent.wait()
    assert status == 2 and "File exists" in err
    assert file.read_text() == "precious"


def make_recording(host, file, calls=50):
    container = host.container("mixed", "--calls", calls)
    agent = host.agent("--out", file, *only(container))
    host.run(agent, container)
    status, _, err = agent.stop()
    assert status == 0, err


def test_queries_print_every_format_and_refuse_to_write(host, tmp_path):
    file, copy = tmp_path / "a.db", tmp_path / "b.db"
    make_recording(host, file)
    shutil.copy(file, copy)
    rows = value(file, "SELECT COUNT(*) FROM nccl_events")
    table = ingero("query", file, "SELECT COUNT(*) AS n FROM nccl_events")
    assert table.stdout.split() == ["n", "-" * len(str(rows)), str(rows)]
    csv = ingero("query", file, "SELECT 1 AS a, 'x' AS b", "--format", "csv")
    assert csv.stdout == "a,b\n1,x\n"  # text mode makes \n of \r\n
    markdown = ingero("query", file, "SELECT 1 AS a", "--format", "markdown")
    assert markdown.stdout == "| a |\n|---|\n| 1 |\n"
    sql = tmp_path / "join.sql"
    sql.write_text(JOIN)
    assert ingero("query", file, "-f", sql).returncode == 0
    piped = subprocess.run([os.path.join(build_dir(), "ingero"), "query", file], input=SLOWEST,
                           capture_output=True, text=True, check=True)
    assert "ms" in piped.stdout
    both = query([file, copy], "SELECT node, COUNT(*) AS n FROM nccl_events GROUP BY node")
    assert len(both) == 2 and {row["n"] for row in both} == {rows}
    for sql in ("DELETE FROM nccl_calls", "ATTACH '/etc/passwd' AS x", "PRAGMA query_only = 0"):
        refused = ingero("query", file, sql)
        assert refused.returncode == 1 and refused.stderr, sql
    wrong = ingero("query", file, "SELECT opp FROM nccl_events")
    assert wrong.returncode == 1
    assert wrong.stderr.splitlines()[1:] == ["  line 1: SELECT opp FROM nccl_events",
                                             " " * 17 + "^"]
    schema = ingero("query", file, "--schema").stdout
    assert "nccl_events (view): one row for each NCCL" in schema
    assert "  duration_ns          INTEGER  time that the call took on the host" in schema
    assert value(file, "SELECT COUNT(*) FROM nccl_events") == rows


def test_ctrl_c_ends_a_query(host, tmp_path):
    file = tmp_path / "a.db"
    make_recording(host, file, calls=1)
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT SUM(i) FROM n"
    with subprocess.Popen([os.path.join(build_dir(), "ingero"), "query", file, endless],
                          stderr=subprocess.PIPE, text=True) as process:
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        assert process.wait(5) == 130
        assert "interrupted" in process.stderr.read()


def test_hostile_files_are_errors(host, tmp_path):
    file = tmp_path / "a.db"
    make_recording(host, file, calls=1)
    good = file.read_bytes()
    os.mkfifo(tmp_path / "fifo")
    hostile = {"empty": b"", "text": b"x" * 10000, "cut": good[:len(good) // 2],
               "header": good[:100], "shuffled": good[:8192] + good[8192:][::-1],
               "page size": good[:16] + b"\x00\x00" + good[18:],
               "zeros": good[:4096] + bytes(len(good) - 4096)}
    for name, content in hostile.items():
        path = tmp_path / name
        path.write_bytes(content)
        for sql in (SLOWEST, JOIN, "SELECT * FROM collectives"):
            done = ingero("query", path, sql)
            assert done.returncode in (0, 1, 2), (name, done)
            assert done.returncode != 0 or name in ("cut", "shuffled", "zeros"), (name, done)
        for command in ("report", "export"):
            assert ingero(command, path).returncode in (0, 2), (name, command)
    for path in (tmp_path / "fifo", "/dev/zero", "/proc/self/mem", tmp_path, tmp_path / "no"):
        done = ingero("query", path, SLOWEST)
        assert done.returncode == 2 and done.stderr.startswith("ingero query: "), (path, done)
        assert ingero("report", path).returncode == ingero("export", path).returncode == 2, path
    escape = tmp_path / "escape.db"
    shutil.copy(file, escape)
    with contextlib.closing(sqlite3.connect(escape)) as database, database:
        database.execute("UPDATE recording SET host = ?", ("\x1b[2J\x1b]0;gotcha\x07",))
    assert "\x1b" not in ingero("query", escape, "SELECT host FROM recording").stdout


def test_report_and_time_line_name_the_late_rank_of_a_communicator(host, tmp_path):
    """Two ranks with one id; rank 1 needs 20 ms for each call, so rank 0 calls first each time."""
    file = tmp_path / "ranks.db"
    agent = host.agent("--out", file)
    shared = tmp_path / "shared"
    shared.mkdir()
    containers = [host.container("allreduce", "--calls", 20, "--nranks", 2, "--rank", rank,
                                 "--id-file", "/shared/id", libraries=stubs(cuda=False),
                                 shares=[f"{shared}:/shared"],
                                 environment=[f"STUB_NCCL_BUSY_NS={rank * 20_000_000}"])
                  for rank in range(2)]
    for container in containers:
        agent.wait_attached(container.wait_ready(), 2)
    for container in containers:
        container.start()
    for container in containers:
        container.tally()
        container.finish()
    assert agent.stop()[0] == 0
    late = query(file, "SELECT a.comm_id_hash AS hash, COUNT(*) AS n FROM nccl_events a JOIN "
                       "nccl_events b USING (comm_id_hash, sequence) WHERE a.rank = 0 AND "
                       "b.rank = 1 AND b.timestamp_ns > a.timestamp_ns AND a.op = 'ALL_REDUCE'")
    page = ingero("report", file)
    assert page.returncode == 0, page.stderr
    section = page.stdout.split("Late rank of each communicator")[1].split("Network")[0]
    row = section.strip().splitlines()[-1].split()
    assert row[:4] == [late[0]["hash"][:8], "1", str(late[0]["n"]), "20"], (section, late)
    html = ingero("report", file, "--html")
    assert "<svg" in html.stdout
    assert "http:" not in html.stdout and "https:" not in html.stdout
    line = tmp_path / "t.json"
    assert ingero("export", file, "--format", "perfetto", "-o", line).returncode == 0
    events = json.loads(line.read_text())["traceEvents"]
    phases = [event["ph"] for event in events]
    assert phases.count("s") == phases.count("f") == 20
    threads = {event["tid"] for event in events if event.get("cat") == "nccl"}
    assert threads == {container.pid for container in containers}
