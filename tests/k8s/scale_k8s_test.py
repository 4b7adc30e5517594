# SPDX-License-Identifier: Apache-2.0
"""A node with a thousand pods and two hundred policies: what the agent then needs."""
import json
import time

import pytest

from e2e.harness.waiting import wait_until
from harness.kubectl import hack_cluster, kubectl, run
from policy_k8s_test import ONLY_POLICIES, calls, in_namespace, policies, policy, wait_state

assert policies  # a fixture

PODS = 1000
POLICIES = 200


def many(kind, objects):
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    kubectl("create", "-f", "-", text_input=text, seconds=300)
    print(f"made {len(objects)} {kind}")


def in_force():
    """The policies whose status says that the node has them in force."""
    items = json.loads(kubectl("get", "gtp", "-o", "json"))["items"]
    return [item for item in items if item.get("status", {}).get("ready") == "1/1"]


@pytest.fixture
def crowd(cluster):
    """Pods that the API server knows and no kubelet runs, and policies for some of them."""
    pods = [{"apiVersion": "v1", "kind": "Pod",
             "metadata": {"name": f"crowd-{i}", "namespace": cluster.namespace,
                          "labels": {"app": f"app-{i % 50}", "crowd": "yes"},
                          "annotations": {"note": "x" * 200}},
             "spec": {"nodeName": "node1", "automountServiceAccountToken": False,
                      "containers": [{"name": "main", "image": "localhost/none",
                                      "imagePullPolicy": "Never"}]}} for i in range(PODS)]
    some = [policy(f"crowd-{i}", podSelector={"matchExpressions": [
        {"key": "app", "operator": "In", "values": [f"app-{i % 50}", "none"]}]},
                   labels={"podLabels": ["app"]}) for i in range(POLICIES)]
    for item in some:
        item["metadata"]["labels"] = {"crowd": "yes"}

    def make():
        many("pods", pods)
        many("policies", some)

    yield make
    run("kubectl", "delete", "gtp", "-l", "crowd=yes", "--wait=false", check=False, seconds=120)
    run("kubectl", "delete", "pods", "-n", cluster.namespace, "-l", "crowd=yes", "--force",
        "--grace-period=0", "--wait=false", check=False, seconds=300)
    hack_cluster("start-part", "kubelet")


def test_a_thousand_pods_and_two_hundred_policies_cost_little(cluster, policies, crowd):
    agent = cluster.agent(*ONLY_POLICIES)
    image = cluster.stub_image()
    pod = cluster.workload(image, "memcpy", ["--seconds", 600, "--rate", 100])
    agent.wait_attached(pod.wait_ready(), len(image.libraries))
    pod.start()
    wait_state(agent, pod, "untraced")
    hack_cluster("stop-part", "kubelet")
    crowd()
    wait_until(lambda: agent.state()["pods_known"] >= PODS, "all pods known", 60)
    wait_until(lambda: len(agent.state()["policies"]) >= POLICIES, "all policies known", 60)
    policies.apply("one-more", namespaceSelector=in_namespace(cluster))
    applied = time.monotonic()
    wait_until(lambda: calls(agent, pod) > 0, "counted calls", 5, interval=0.02)
    effect = time.monotonic() - applied
    wait_until(lambda: len(in_force()) > POLICIES,
               lambda: f"only {len(in_force())} policies are told to be in force", 60)
    told_after = time.monotonic() - applied
    writes = agent.state()["reports"]["writes"]
    before = agent.metrics()
    time.sleep(20)
    after = agent.metrics()
    used = after.value("process_cpu_seconds_total") - before.value("process_cpu_seconds_total")
    resident = after.value("process_resident_memory_bytes") / 2**20
    print(f"{PODS} pods, {POLICIES} policies: {resident:.1f} MiB resident, "
          f"{used / 20 * 100:.2f} % of a core idle, a policy in force after {effect:.2f} s, "
          f"every policy's status says so after {told_after:.1f} s")
    assert resident < 80
    # Nothing changes, so nothing is written: the load of an idle cluster's API server.
    assert agent.state()["reports"]["writes"] - writes <= 2
