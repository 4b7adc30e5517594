# SPDX-License-Identifier: Apache-2.0
"""The page of `ingero report --html` and the time line of `ingero export`, in a real browser."""
import collections
import contextlib
import functools
import http.server
import json
import os
import shutil
import sqlite3
import threading

import pytest

from harness.browser import Browser
from harness.host import stubs
from harness.recording import ingero, query
from harness.waiting import wait_until

VIEWER = os.path.join(os.environ.get("INGERO_CACHE", "/var/cache/ingero"), "trace-viewer")
RANKS, CALLS, POINTS = 2, 200, 120


@pytest.fixture
def browser(tmp_path):
    if not shutil.which("chromium"):
        pytest.skip("no chromium; hint: hack/setup")
    with Browser(tmp_path / "profile") as started:
        yield started


@pytest.fixture
def recording(host, tmp_path):
    """Two ranks of one communicator, copies, errors; and put in by hand: segments sent again."""
    file = tmp_path / "x.db"
    shared = tmp_path / "shared"
    shared.mkdir()
    agent = host.agent("--out", file)
    ranks = [host.container("allreduce", "--calls", CALLS, "--rate", 200, "--nranks", RANKS,
                            "--rank", rank, "--id-file", "/shared/id",
                            libraries=stubs(cuda=False), shares=[f"{shared}:/shared"])
             for rank in range(RANKS)]
    host.run(agent, *ranks, host.container("mixed", "--calls", 5), host.container("errors"))
    assert agent.stop()[0] == 0
    with contextlib.closing(sqlite3.connect(file)) as database, database:
        database.execute("INSERT INTO tcp_events (timestamp_ns, event, saddr, sport, cgroup_id) "
                         "SELECT timestamp_ns, 'tcp_retransmit_skb', '10.0.0.1', 5, cgroup_id FROM "
                         "nccl_events WHERE op = 'ALL_REDUCE' LIMIT 7")
        database.execute("INSERT INTO sched_events (timestamp_ns, duration_ns, event, cpu, pid, "
                         "tid, process_start_ns, cgroup_id) SELECT timestamp_ns + duration_ns / 4, "
                         "duration_ns / 2, 'off_cpu', 1, pid, tid, process_start_ns, cgroup_id FROM "
                         "nccl_events WHERE op = 'ALL_REDUCE' LIMIT 5")
    return file


def points_of(file):
    """How many points the plot must have: parts of the time in which a rank called a collective."""
    begin, end = query(file, "SELECT started_ns, ended_ns FROM recording")[0].values()
    rows = query(file, "SELECT comm_id_hash, rank, timestamp_ns AS at FROM collectives")
    ranks = {(row["comm_id_hash"], row["rank"]) for row in rows}
    assert RANKS < len(ranks) <= 8, "as many as the plot shows"
    return len({(row["comm_id_hash"], row["rank"],
                 min(int((row["at"] - begin) / (end - begin) * POINTS), POINTS - 1))
                for row in rows})


def test_the_report_opens_in_a_browser_and_shows_what_sql_counts(browser, recording, tmp_path):
    page = tmp_path / "page.html"
    assert ingero("report", recording, "--html", "-o", page).returncode == 0
    for scheme, width in (("light", 1280), ("dark", 500)):
        browser.scheme(scheme)
        browser.resize(width)
        browser.open(page.as_uri())
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
        colour = browser.evaluate("getComputedStyle(document.body).backgroundColor")
        assert colour == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(20, 24, 29)")
    assert browser.problems == []
    assert set(browser.requests) == {page.as_uri()}, "it asks for nothing else"
    assert browser.evaluate("document.querySelectorAll('circle').length") == points_of(recording)
    titles = browser.evaluate("[...document.querySelectorAll('rect.mark')].map(m => m.textContent)")
    marked = collections.Counter()
    for title in titles:
        name, rest = title.split(": ")
        marked[name] += int(rest.split()[0])
    kernel = query(recording, "SELECT event, COUNT(*) AS n FROM (SELECT event FROM tcp_events UNION "
                              "ALL SELECT event FROM sched_events) GROUP BY event")
    names = {"tcp_retransmit_skb": "TCP retransmits", "run_queue_wait": "waits for a CPU",
             "off_cpu": "spans off the CPU"}
    assert marked == {names[row["event"]]: row["n"] for row in kernel}
    assert marked["TCP retransmits"] >= 7 and marked["spans off the CPU"] >= 5
    calls = browser.evaluate("[...document.querySelectorAll('h2')].find(h => h.textContent === "
                             "'NCCL calls by operation').nextElementSibling.innerText")
    shown = {line.split("\t")[0]: int(line.split("\t")[1].replace(",", ""))
             for line in calls.splitlines()[1:]}
    assert shown == {row["op"]: row["n"] for row in query(
        recording, "SELECT op, COUNT(*) AS n FROM nccl_events GROUP BY op")}


class Files(http.server.SimpleHTTPRequestHandler):
    extensions_map = {**http.server.SimpleHTTPRequestHandler.extensions_map,
                      ".wasm": "application/wasm"}

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def served(folder):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0),
                                             functools.partial(Files, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def asked(browser, sql):
    """Rows of the viewer's own database of what it has imported."""
    return browser.evaluate("""(async () => {
      const answer = await app.trace.engine.query(SQL), rows = [];
      for (const at = answer.iter({}); at.valid(); at.next())
        rows.push(answer.columns().map(name => {
          const value = at.get(name);
          return typeof value === 'bigint' ? Number(value) : value;
        }));
      return rows;
    })()""".replace("SQL", json.dumps(sql)), 60)


def test_the_viewer_imports_every_slice_flow_and_name_of_the_time_line(browser, recording, tmp_path):
    if not os.path.exists(f"{VIEWER}/index.html"):
        pytest.skip("no viewer; hint: hack/fetch-trace-viewer")
    folder = tmp_path / "viewer"
    folder.mkdir()
    for name in os.listdir(VIEWER):
        (folder / name).symlink_to(f"{VIEWER}/{name}")
    assert ingero("export", recording, "-o", folder / "t.json").returncode == 0
    with served(folder) as address:
        browser.open(f"{address}/index.html#!/?url={address}/t.json", 60)
        wait_until(lambda: browser.evaluate("typeof app !== 'undefined' && !!app.trace"),
                   "the time line in the viewer", 60)
        slices = dict(asked(browser, "SELECT category, COUNT(*) FROM slice GROUP BY category"))
        flows = asked(browser, "SELECT COUNT(*) FROM flow")[0][0]
        troubles = asked(browser, "SELECT name, value FROM stats WHERE value > 0 AND severity IN "
                                  "('error', 'data_loss')")
        processes = {name: pid for name, pid in
                     asked(browser, "SELECT name, pid FROM process WHERE name IS NOT NULL")}
        inside = asked(browser, "SELECT COUNT(*) FROM slice s JOIN slice p ON p.id = s.parent_id "
                                "WHERE s.name = 'off_cpu' AND p.name = 'ALL_REDUCE'")[0][0]
        ranks = asked(browser, "SELECT p.name, t.name, COUNT(*) FROM slice s JOIN thread_track k ON "
                               "k.id = s.track_id JOIN thread t USING (utid) JOIN process p USING "
                               "(upid) WHERE s.category = 'communicator' GROUP BY 1, 2")
    counts = query(recording, "SELECT (SELECT COUNT(*) FROM nccl_events) AS nccl, (SELECT COUNT(*) "
                              "FROM cuda_events) AS cuda, (SELECT COUNT(*) FROM tcp_events) + (SELECT "
                              "COUNT(*) FROM sched_events) AS kernel, (SELECT COUNT(*) FROM nccl_events "
                              "WHERE sequence IS NOT NULL AND comm_id_hash IS NOT NULL) AS "
                              "communicator")[0]
    assert troubles == []
    assert slices == counts
    assert flows == CALLS, "one from rank to rank for each collective"
    within = query(recording, "SELECT COUNT(*) AS n FROM sched_events s JOIN nccl_events e ON e.tid = "
                              "s.tid AND s.timestamp_ns BETWEEN e.timestamp_ns AND e.timestamp_ns + "
                              "e.duration_ns WHERE s.event = 'off_cpu' AND e.op = 'ALL_REDUCE'")
    assert inside == within[0]["n"] >= 5, "a span off the CPU lies in its call"
    by_rank = query(recording, "SELECT 'communicator ' || comm_id_hash AS comm, 'rank ' || rank AS "
                               "rank, COUNT(*) AS n FROM nccl_events WHERE sequence IS NOT NULL "
                               "GROUP BY 1, 2")
    assert sorted(ranks) == sorted(list(row.values()) for row in by_rank)
    host = query(recording, "SELECT host FROM recording")[0]["host"]
    assert f"TCP ({host})" in processes
    for row in query(recording, "SELECT pid, command FROM processes WHERE command IS NOT NULL"):
        assert processes[f"{row['command']} {row['pid']} ({host})"] == row["pid"]
