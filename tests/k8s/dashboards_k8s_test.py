# SPDX-License-Identifier: Apache-2.0
"""The dashboards in a cluster: as the chart brings them, and asked of a Prometheus that scrapes the agent."""
import json

import yaml
from e2e.harness.dashboards import Board, names, wait_for_data
from harness.kubectl import run
from harness.kubernetes_agent import CHART
from harness.prometheus import Prometheus


def test_the_chart_has_a_labelled_config_map_for_each_board():
    rendered = run("helm", "template", "ingero", CHART, "--kube-version", "1.30.0", "--set",
                   "dashboards.enabled=true").stdout
    maps = [o for o in yaml.safe_load_all(rendered)
            if o and o["metadata"].get("labels", {}).get("grafana_dashboard") == "1"]
    found = {name: json.loads(text) for o in maps for name, text in o["data"].items()}
    assert found == {name: Board(name).json for name in names()} and len(found) == 2
    for made in maps:
        assert made["kind"] == "ConfigMap" and len(json.dumps(made)) < 1 << 19, made["metadata"]["name"]


def test_each_query_of_each_panel_and_each_variable_has_data_in_the_cluster(cluster):
    agent = cluster.agent("config.slow_call_threshold=1us")
    image = cluster.stub_image()
    workloads = [cluster.workload(image, "mixed", ["--seconds", 120, "--rate", 2]),
                 cluster.workload(image, "copies", ["--seconds", 120, "--rate", 100]),
                 cluster.workload(image, "allreduce", ["--seconds", 120, "--rate", 20]),
                 cluster.workload(image, "errors", ["--seconds", 120, "--rate", 10])]
    for workload in workloads:
        agent.wait_attached(workload.wait_ready(), len(workload.libraries))
    boards = [Board(name) for name in names()]
    with Prometheus(cluster.directory, f"{agent.address}:{agent.port}") as prometheus:
        prometheus.wait_for("up", lambda result: [value for _, value in result] == [1])
        for workload in workloads:
            workload.start()
        asked = {board.json["title"]: wait_for_data(board, prometheus.query) for board in boards}
        print(f"queries with data: {asked}")
        # A pod that is chosen is alone on the board.
        pods = Board("pods.json")
        chosen = {"namespace": cluster.namespace, "pod": workloads[2].pod}
        for title in ("Pods", "Containers"):
            found = prometheus.wait_for(pods.expression(title, "B", **chosen),
                                        lambda result: result and all(value for _, value in result))
            assert {labels["pod"] for labels, _ in found} == {workloads[2].pod}, found
