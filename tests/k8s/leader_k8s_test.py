# SPDX-License-Identifier: Apache-2.0
"""The elected agent beside the reports of many nodes: what it writes, and what that costs it."""
import contextlib
import http.client
import itertools
import json
import re
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from e2e.harness.waiting import wait_until
from harness.kubectl import environment
from policy_k8s_test import ONLY_POLICIES, policies
from status_k8s_test import wait_status

assert policies  # a fixture

NODES = 300
WRITES_PER_S = 33  # of ten thousand nodes, each every five minutes
REPORTS = "/apis/ingero.io/v1alpha1/gputracenodes"
LABEL = {"ingero-test": "many-nodes"}
SELECTOR = "labelSelector=ingero-test%3Dmany-nodes"


class Api:
    """The API server without kubectl's start for each request."""
    def __init__(self, port):
        self.port = port

    def send(self, method, path, body, content_type="application/json"):
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)) as client:
            client.request(method, path, json.dumps(body), {"Content-Type": content_type})
            answer = client.getresponse()
            text = answer.read().decode()
            assert answer.status in (200, 201), f"{method} {path}: {answer.status} {text[:500]}"

    def send_all(self, requests):
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda request: self.send(*request), requests))


@pytest.fixture
def api():
    with subprocess.Popen(["env", "kubectl", "proxy", "--port=0"], env=environment(), text=True,
                          stdout=subprocess.PIPE) as proxy:
        yield Api(int(re.search(r":(\d+)$", proxy.stdout.readline().strip()).group(1)))
        proxy.terminate()


@pytest.fixture
def leader(cluster):
    agent = cluster.agent(*ONLY_POLICIES)
    wait_until(lambda: agent.state()["reports"]["is_leader"], "the agent leads", 30)
    return agent


@pytest.fixture
def many_nodes(leader, api):
    """Node objects, which keep reports from being orphans, and a report of each. No agent runs there: they
    lack the label of Linux."""
    assert leader
    metadata = [{"name": f"many-{i}", "labels": LABEL} for i in range(NODES)]
    try:
        api.send_all(("POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": item,
                                                "spec": {"unschedulable": True}}) for item in metadata)
        api.send_all(("POST", REPORTS, {"apiVersion": "ingero.io/v1alpha1", "kind": "GpuTraceNode",
                                        "metadata": item}) for item in metadata)
        yield [item["name"] for item in metadata]
    finally:
        delete_reports(api)
        api.send("DELETE", f"/api/v1/nodes?{SELECTOR}", {})


def delete_reports(api):
    api.send("DELETE", f"{REPORTS}?{SELECTOR}", {})


def report(pods, ready=True, generation=1):
    """A node's status that speaks of the policy `sum`, once too often, and of one that is not there."""
    rows = [{"name": "sum", "observedGeneration": generation, "pods": pods, "processes": 8 * pods,
             "ready": ready, "message": "" if ready else "no library"}]
    return {"status": {"policies": rows + [{"name": "not-there", "pods": 9, "ready": True}]}}


def write(api, reports):
    api.send_all(("PATCH", f"{REPORTS}/{name}/status", status, "application/merge-patch+json")
                 for name, status in reports.items())


def test_a_policy_has_the_sum_of_three_hundred_reports(leader, policies, api, many_nodes):
    policies.apply("sum", podSelector={"matchLabels": {"app": "nowhere"}})
    wait_status("gtp", "sum", nodes=1, ready="1/1")
    pods = {name: i % 5 for i, name in enumerate(many_nodes)}
    write(api, {name: report(count) for name, count in pods.items()})
    everywhere = f"{NODES + 1}/{NODES + 1}"  # this node too, which has no such pod
    wait_status("gtp", "sum", nodes=NODES + 1, pods=sum(pods.values()),
                processes=8 * sum(pods.values()), ready=everywhere)

    # One node after the other has news, as fast as those of a large cluster have.
    before, began = leader.metrics(), time.monotonic()
    for number, name in zip(itertools.count(), 2 * many_nodes):
        write(api, {name: report(7, ready=name != "many-99")})
        time.sleep(max(0.0, began + number / WRITES_PER_S - time.monotonic()))
    seconds = time.monotonic() - began
    used = leader.metrics().value("process_cpu_seconds_total") - before.value("process_cpu_seconds_total")
    status = wait_status("gtp", "sum", pods=7 * NODES, processes=56 * NODES, ready=everywhere)
    [condition] = status["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "NotAllTraced"), condition
    assert "many-99: no library" in condition["message"]
    print(f"{2 * NODES / seconds:.0f} reports/s of {NODES} nodes: {100 * used / seconds:.2f} % of a core, "
          f"{leader.metrics().value('process_resident_memory_bytes') / 2**20:.1f} MiB resident")

    delete_reports(api)
    wait_status("gtp", "sum", nodes=1, pods=0, ready="1/1")
