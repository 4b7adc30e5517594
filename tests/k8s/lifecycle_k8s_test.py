# SPDX-License-Identifier: Apache-2.0
"""The agent goes and comes: its pod deleted, the release upgraded, the node rebooted, all uninstalled."""
import json

import pytest
from e2e.harness.waiting import wait_until
from harness.kubectl import apply, get, get_all, hack_cluster, helm, kubectl
from harness.kubernetes_agent import CHART, NAMESPACE, SELECTOR, KubernetesAgent, uninstall
from harness.pod_comparison import check_exact_pods
from policy_k8s_test import run_inside
from status_k8s_test import wait_status

RELEASED = ["image.repository=localhost/ingero", "image.tag=test"]


def upgrade(*values):
    options = [text for value in (*RELEASED, *values) for text in ("--set", value)]
    helm("upgrade", "ingero", CHART, "-n", NAMESPACE, *options, "--wait", seconds=150)
    kubectl("rollout", "status", "daemonset/ingero", "-n", NAMESPACE, "--timeout=90s", seconds=120)


def check_counts_anew(cluster, agent, workload, image, number):
    """A fresh agent attaches to a pod that has run all the time, and counts what it calls now."""
    agent.wait_attached(workload.pid(), len(image.libraries))
    tally = run_inside(cluster, workload, "mixed", number, image, "--calls", 1 + number)
    check_exact_pods(agent, (workload, tally))
    wait_status("gtn", "node1", agentPod=agent.name, pods=1)
    wait_status("gtp", "default", nodes=1, processes=1, ready="1/1")


@pytest.fixture
def running(cluster):
    """(agent, image, a pod whose first calls are counted)"""
    agent = cluster.agent()
    image = cluster.stub_image()
    workload = cluster.workload(image, "mixed", ["--calls", 2])
    tallies = cluster.run(agent, workload)
    check_exact_pods(agent, (workload, tallies[0]))
    return agent, image, workload


def test_an_agent_whose_pod_is_deleted_comes_back_and_counts(cluster, running):
    agent, image, workload = running
    kubectl("delete", "pod", agent.name, "-n", NAMESPACE)
    again = KubernetesAgent().wait_ready()
    assert again.name != agent.name
    check_counts_anew(cluster, again, workload, image, 1)


def test_an_upgrade_with_changed_values(cluster, running):
    agent, image, workload = running
    before = agent.metrics().value("gpu_cuda_operation_count_total", **workload.labels())
    upgrade("image.pullPolicy=Never", "config.max_series=5555")
    wait_until(lambda: "max_series: 5555" in agent.state()["config"], "the setting in force", 5)
    assert KubernetesAgent().name == agent.name, "settings need no new pod"
    assert agent.metrics().value("gpu_cuda_operation_count_total", **workload.labels()) == before
    upgrade("image.pullPolicy=IfNotPresent", "config.max_series=5555")
    again = KubernetesAgent().wait_ready()
    assert again.name != agent.name
    wait_until(lambda: "max_series: 5555" in again.state()["config"], "the setting in force", 5)
    check_counts_anew(cluster, again, workload, image, 1)


def test_a_node_that_reboots(cluster):
    agent = cluster.agent()
    image = cluster.stub_image()
    # As a Deployment's pods are: started again by the kubelet of the node that is back.
    workload = cluster.workload(image, "mixed", ["--calls", 2], restart="Always")
    tallies = cluster.run(agent, workload)
    check_exact_pods(agent, (workload, tallies[0]))
    before = workload.container_id()
    hack_cluster("reboot", seconds=180)
    again = KubernetesAgent()

    def is_back():
        try:
            return again.refresh().get("/readyz", timeout=5)[0] == 200
        except OSError:
            return False

    wait_until(is_back, "the agent is back", 120, interval=0.5)
    assert again.name == agent.name, "the same pod, started again"
    wait_until(lambda: workload.container_id() != before and workload.status()["state"].get("running"),
               "the workload's new container", 60, interval=0.5)
    agent = again
    agent.wait_attached(workload.pid(), len(image.libraries))
    tally = run_inside(cluster, workload, "mixed", 1, image, "--calls", 3)
    # Its start file is still there, so it has called as before, partly before anybody looked.
    wait_until(lambda: agent.metrics().value("gpu_cuda_operation_count_total", **workload.labels())
               >= sum(row["calls"] for row in tally["functions"]), "counted calls")
    status = wait_status("gtn", "node1", pods=1)
    assert status["agentPod"] == agent.name


def node_names():
    return {item["metadata"]["name"] for item in get_all("gtn")}


def test_reports_of_nodes_that_are_gone_are_deleted(cluster):
    cluster.agent()
    wait_until(lambda: "node1" in node_names(), "the node's report", 15)
    apply({"apiVersion": "ingero.io/v1alpha1", "kind": "GpuTraceNode",
           "metadata": {"name": "taken-away"}})
    wait_until(lambda: "taken-away" not in node_names(), "the report is gone", 45, interval=0.5)
    assert "node1" in node_names()


def test_uninstalling_leaves_no_report_and_no_policy_of_the_release(cluster):
    cluster.agent()
    wait_until(lambda: "node1" in node_names(), "the node's report", 15)
    owner = get("gtn", "node1")["metadata"]["ownerReferences"]
    assert [(o["kind"], o["name"]) for o in owner] == [("ClusterRole", "ingero")], json.dumps(owner)
    uninstall()
    wait_until(lambda: not get_all("gtn"), lambda: f"reports: {node_names()}", 30, interval=0.3)
    assert get("gtp", "default") is None
    assert get("crd", "gputracenodes.ingero.io") and get("crd", "gputracepolicies.ingero.io")
    wait_until(lambda: not get_all("pods", NAMESPACE, SELECTOR), "no pod", 30, interval=0.3)
    # A release that follows at once has its report, whatever is deleted late of the one before.
    agent = cluster.agent()
    wait_status("gtn", "node1", agentPod=agent.name)
    uninstall()
    agent = cluster.agent()
    wait_status("gtn", "node1", agentPod=agent.name)
