# SPDX-License-Identifier: Apache-2.0
"""The dashboards: well made, and every query answered by a Prometheus that scrapes the agent."""
import os
import re
import shutil
import subprocess
import sys

import pytest

from harness.dashboards import REPOSITORY, Board, layout_problems, names, shown_labels, wait_for_data
from harness.waiting import wait_until

# For the Prometheus of the Kubernetes tests.
sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

UIDS = {"data-movement.json": "ingero-data-movement", "pods.json": "ingero-pods"}
OTHER_LABELS = {"le", "job", "instance", "node", "namespace", "pod", "container"}


def boards():
    return [Board(name) for name in names()]


def documented():
    """name: own labels, of docs/metrics.md"""
    with open(os.path.join(REPOSITORY, "docs", "metrics.md"), encoding="utf-8") as file:
        lines = re.findall(r"^\| `(\w+)` \|[^|]*\|[^|]*\|([^|]*)\|", file.read(), re.M)
    return {name: set(re.findall(r"`(\w+)`", labels)) for name, labels in lines}


def used_metrics(expression):
    """Names, those of histograms without their ends."""
    found = re.findall(r"\b(?:gpu|ingero|process)_\w+", expression)
    return {re.sub(r"_bucket$|(?<=_ms)_count$|(?<=_bytes)_count$", "", name) for name in found}


def test_the_boards_are_those_that_the_chart_should_have():
    assert {name: Board(name).json["uid"] for name in names()} == UIDS


def test_boards_are_what_grafana_takes():
    for board in boards():
        made = board.json
        assert made["title"] and made["refresh"] == "30s" and "ingero" in made["tags"], made["title"]
        assert made["schemaVersion"] >= 36 and "id" not in made
        assert not layout_problems(board)
        assert list(board.variables)[:4] == ["datasource", "node", "namespace", "pod"]
        for name, variable in board.variables.items():
            if name != "datasource":
                assert variable["multi"] and variable["includeAll"] and variable["allValue"] == ".*", name
        for panel in board.panels():
            if panel["type"] == "row":
                continue
            what = f"{made['title']}: {panel['title']}"
            assert panel["description"] and panel["fieldConfig"]["defaults"].get("noValue"), what
            assert panel["targets"], what
            for target in [panel, *panel["targets"]]:
                assert target["datasource"] == {"type": "prometheus", "uid": "${datasource}"}, what
            if panel["type"] not in ("heatmap", "table"):
                assert panel["fieldConfig"]["defaults"]["unit"], what


def test_links_lead_to_the_boards_and_set_their_variables():
    by_uid = {board.json["uid"]: board for board in boards()}
    seen = set()
    for board in boards():
        links = [link["url"] for link in board.json["links"]]
        for panel in board.panels():
            config = panel.get("fieldConfig", {"defaults": {}, "overrides": []})
            found = list(config["defaults"].get("links", []))
            for override in config["overrides"]:
                found += [link for p in override["properties"] if p["id"] == "links" for link in p["value"]]
            shown = set().union(*(shown_labels(panel, target) for target in panel.get("targets", [])))
            for link in found:
                links.append(link["url"])
                fields = set(re.findall(r"__(?:data\.fields|field\.labels)\.(\w+)", link["url"]))
                assert fields and fields <= shown, (panel["title"], link["url"])
        for url in links:
            uid, _, query = url.removeprefix("/d/").partition("?")
            set_variables = re.findall(r"var-(\w+)=", query)
            assert set(set_variables) <= set(by_uid[uid].variables), url
            seen.add((board.json["uid"], uid))
    pods, movement = UIDS["pods.json"], UIDS["data-movement.json"]
    assert seen >= {(pods, pods), (pods, movement), (movement, pods)}


def test_queries_name_only_metrics_and_labels_that_are_documented():
    known = documented()
    counters = set()
    for board in boards():
        expressions = [(panel["title"], target["expr"]) for panel, target in board.queries()]
        expressions += [(name, selector) for name, (selector, _) in board.label_values().items()]
        for title, expression in expressions:
            metrics = used_metrics(expression)
            assert metrics and metrics <= set(known), (title, metrics - set(known))
            labels = set(re.findall(r"(\w+)(?:=~|!~|!=|=)\"", expression)) - {"__name__"}
            for group in re.findall(r"(?:\bby|\bon|\bgroup_left) \(([^)]*)\)", expression):
                labels |= set(re.findall(r"\w+", group))
            allowed = OTHER_LABELS.union(*(known[name] for name in metrics))
            assert labels <= allowed, (title, labels - allowed)
            counters |= {name for name in metrics if name.endswith(("_total", "_count"))}
    # The subject of the boards: nothing of it is left out.
    assert {name for name in known if name.startswith(("gpu_memcpy", "gpu_nccl"))} <= {
        name for board in boards() for _, target in board.queries() for name in used_metrics(target["expr"])}
    assert counters


def test_promtool_agrees_with_the_queries_that_judge(tmp_path):
    """Stalled communicators, ranks apart, and errors of a series that begins with its first."""
    promtool = shutil.which("promtool")
    if not promtool:
        pytest.skip("no promtool; hint: hack/setup (package prometheus)")
    import yaml  # pylint: disable=import-outside-toplevel
    board = Board("data-movement.json")
    sequence = "gpu_nccl_communicator_collectives_total"

    def rank(comm, number, values, pod="p"):
        return {"series": f'{sequence}{{comm_id="{comm}",rank="{number}",pod="{pod}{number}"}}',
                "values": values}

    # stuck: apart since minute 2; busy: apart and going on; even: all waited for came; lone: one rank.
    inputs = [rank("stuck", 0, "0+10x2 21x30"), rank("stuck", 1, "0+10x2 20x30"),
              rank("busy", 0, "5+10x40"), rank("busy", 1, "0+10x40"),
              rank("even", 0, "7x40"), rank("even", 1, "7x40"), rank("lone", 0, "9x40"),
              rank("", 0, "1x40"), rank("other", 0, "3x40"), rank("", 1, "9x40"),
              {"series": 'gpu_nccl_errors_total{op_type="a"}', "values": "_x28 3 3 4x10"},
              {"series": 'gpu_nccl_errors_total{op_type="b"}', "values": "50x40"},
              # Not scraped for a while: no error is new.
              {"series": 'gpu_nccl_errors_total{op_type="c"}', "values": "70x10 _x15 70x20"},
              {"series": 'ingero_node_ready{node="a"}', "values": "1x40"},
              {"series": 'ingero_node_ready{node="b"}', "values": "0x20 _x20"},
              {"series": 'ingero_node_ready{node="c"}', "values": "0x40"}]

    def says(title, minute, *samples, **chosen):
        return {"expr": board.expression(title, **chosen), "eval_time": f"{minute}m",
                "exp_samples": [{"labels": labels, "value": value} for labels, value in samples]}

    expected = [
        says("Stalled communicators", 4, ("{}", 0)),
        says("Stalled communicators", 20, ("{}", 1)),
        says("Stalled communicators", 20, ("{}", 1), pod="p0"),
        says("Stalled communicators", 20, ("{}", 0), pod="p7"),
        says("Ranks apart", 20, ('{comm_id="stuck"}', 1), ('{comm_id="busy"}', 5), ('{comm_id="even"}', 0),
             ('{comm_id="lone"}', 0)),
        # One rank alone is compared with those that are not selected.
        says("Ranks apart", 20, ('{comm_id="stuck"}', 1), ('{comm_id="busy"}', 5), ('{comm_id="even"}', 0),
             pod="p1"),
        says("NCCL errors", 20, ("{}", 0)),
        says("NCCL errors", 29, ("{}", 3)),
        says("Agents not ready", 10, ("{}", 2)),
        says("Agents not ready", 40, ("{}", 1)),
        says("Nodes without agent", 10, ("{}", 0)),
        says("Nodes without agent", 40, ("{}", 1)),
    ]
    path = tmp_path / "test.yaml"
    path.write_text(yaml.safe_dump({"tests": [{"interval": "1m", "input_series": inputs,
                                               "promql_expr_test": expected}]}))
    done = subprocess.run([promtool, "test", "rules", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def measured(host, tmp_path):
    """An agent beside workloads that call in every way, and a Prometheus that scrapes it from before the
    first call on: (agent, Prometheus, the container with errors)."""
    if not shutil.which("prometheus"):
        pytest.skip("no prometheus; hint: hack/setup")
    from k8s.harness.prometheus import Prometheus  # pylint: disable=import-outside-toplevel
    config = tmp_path / "config.yaml"
    config.write_text("node_name: node7\nslow_call_threshold: 1us\n")
    agent = host.agent("--config", config)
    (tmp_path / "ids").mkdir()
    ranks = [host.container("allreduce", "--seconds", 120, "--rate", rate, "--nranks", 2, "--rank", rank,
                            "--id-file", "/ids/id", "--comm-name", "tp", shares=[f"{tmp_path}/ids:/ids"])
             for rank, rate in ((0, 40), (1, 20))]
    failing = host.container("errors")
    others = [host.container("mixed", "--seconds", 120, "--rate", 2),
              host.container("copies", "--seconds", 120, "--rate", 100)]
    for container in (failing, *ranks, *others):
        agent.wait_attached(container.wait_ready(), 3)
    with Prometheus(tmp_path, f"127.0.0.1:{agent.port}") as prometheus:
        prometheus.wait_for("up", lambda result: [value for _, value in result] == [1])
        for container in (*ranks, *others):
            container.start()
        failing.start()
        failing.tally()
        yield agent, prometheus, failing


def test_each_query_of_each_panel_and_each_variable_has_data(measured):
    _, prometheus, _ = measured
    asked = {board.json["title"]: wait_for_data(board, prometheus.query, never=("namespace", "pod", "policy"))
             for board in boards()}
    print(f"queries with data: {asked}")
    assert all(count >= 30 for count in asked.values()), asked


def test_numbers_of_the_boards_are_those_of_the_agent(measured):
    agent, prometheus, failing = measured
    board = Board("pods.json")
    chosen = {"container": failing.label}

    def agrees():
        metrics = agent.metrics()
        for title, name in (("NCCL errors", "gpu_nccl_errors_total"), ("CUDA errors", "gpu_cuda_errors_total"),
                            ("Slow calls", "ingero_anomaly_count")):
            expected = sum(value for _, value in metrics.series(name, container=failing.label))
            (_, shown), = prometheus.query(board.expression(title, **chosen))
            if not expected or shown != expected:
                return False
        return True

    wait_until(agrees, lambda: [(title, prometheus.query(board.expression(title, **chosen))) for title in (
        "NCCL errors", "CUDA errors", "Slow calls")], 20, interval=1)
    healthy = {"Stalled communicators": 0, "Events lost": 0, "Agents not ready": 0, "Nodes without agent": 0,
               "Settings refused": 0}
    found = {title: [value for _, value in prometheus.query(board.expression(title))] for title in healthy}
    assert found == {title: [value] for title, value in healthy.items()}
    # One rank calls half as often as the other: it is behind, and only it.
    behind = {labels["rank"]: value for labels, value in prometheus.wait_for(
        board.expression("Communicators by rank", "B"), lambda found: len(
            [1 for labels, _ in found if labels["comm_name"] == "tp"]) == 2) if labels["comm_name"] == "tp"}
    assert behind["0"] == 0 and behind["1"] > 0, behind
    # The others still call: copies go in all directions.
    prometheus.wait_for(Board("data-movement.json").expression("Copies by direction"), lambda found: {
        labels["direction"] for labels, value in found if value} >= {"h2h", "h2d", "d2h", "d2d", "default"})
