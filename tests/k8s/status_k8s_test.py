# SPDX-License-Identifier: Apache-2.0
"""What kubectl shows of nodes and policies, why a pod is not traced, and which agent writes it."""
import json
import os
import re
import shutil
import subprocess

import pytest
from e2e.harness.agent import Agent
from e2e.harness.waiting import wait_until
from harness.kubectl import environment, get, get_all, kubectl
from harness.kubernetes_agent import NAMESPACE
from harness.workload import workload_container
from policy_k8s_test import ONLY_POLICIES, in_namespace, policies, wait_state

assert policies  # a fixture

LEASE = "ingero-leader"


def status_of(kind, name):
    return (get(kind, name) or {}).get("status", {})


def wait_status(kind, name, seconds=40, **fields):
    """The status, once it has these fields. After an agent that did not end well the next one is elected
    when the lease is over."""
    return wait_until(
        lambda: (status := status_of(kind, name))
        and all(status.get(key) == value for key, value in fields.items()) and status,
        lambda: f"{kind} {name} with {fields}: {json.dumps(status_of(kind, name))[:3000]}", seconds,
        interval=0.3)


def condition(status, name="Ready"):
    return next((c for c in status.get("conditions", []) if c["type"] == name), {})


def plain_pod(cluster, name):
    """Nothing but a process that waits."""
    cluster.pod(name, [{"name": "main", "image": "localhost/pause:1", "imagePullPolicy": "Never"}])
    wait_until(lambda: get("pod", name, cluster.namespace)["status"]["phase"] == "Running", name)


def broken_library(directory):
    """A library that the loader takes, and the agent does not: one header points behind the file's end."""
    folder = os.path.join(directory, "broken")
    os.makedirs(folder)
    path = os.path.join(folder, "libnccl.so.2")
    source = next(p for p in ("/lib/x86_64-linux-gnu/libz.so.1", "/usr/lib/aarch64-linux-gnu/libz.so.1")
                  if os.path.exists(p))
    shutil.copy(os.path.realpath(source), path)
    with open(path, "r+b") as file:
        header = file.read(64)
        first, size, count = (int.from_bytes(header[at:at + n], "little")
                              for at, n in ((0x20, 8), (0x36, 2), (0x38, 2)))
        for entry in range(first, first + size * count, size):
            file.seek(entry)
            # PT_DYNAMIC, of which the loader takes the address.
            if int.from_bytes(file.read(4), "little") == 2:
                file.seek(entry + 8)
                file.write((1 << 40).to_bytes(8, "little"))
    return folder


def test_a_nodes_report_tells_what_its_agent_sees(cluster):
    agent = cluster.agent()
    image = cluster.stub_image()
    pods = [cluster.workload(image, "mixed", ["--calls", 1]) for _ in range(2)]
    plain_pod(cluster, "plain")
    for pod in pods:
        agent.wait_attached(pod.wait_ready(), len(image.libraries))
        wait_state(agent, pod, "traced")
    status = wait_status("gtn", "node1", pods=2, processes=2, agentPod=agent.name)
    state = agent.state()
    assert status["kernel"] == os.uname().release
    assert status["architecture"] == os.uname().machine
    assert status["method"] == state["method"]
    assert status["probes"] == sum(len(file["probes"]) for file in state["files"]) > 0
    assert status["lostEvents"] == 0 and not status.get("losses")
    assert re.fullmatch("[0-9a-f]{16}", status["configHash"]), status
    assert status["configGeneration"] == get("configmap", "ingero-config", NAMESPACE)[
        "metadata"]["resourceVersion"]
    assert not status.get("configError")
    ready = condition(status)
    assert (ready["status"], ready["reason"]) == ("True", "Counting"), ready
    head, row = (line.split() for line in kubectl("get", "gtn", "node1").splitlines())
    shown = dict(zip(head, row))
    assert shown["PODS"] == "2" and shown["PROBES"] == str(status["probes"])
    assert (shown["KERNEL"], shown["METHOD"], shown["LOST"], shown["READY"]) == (
        status["kernel"], status["method"], "0", "True")
    assert shown["CONFIG"] == status["configGeneration"]


def test_a_policys_status_tells_who_is_traced_and_why_others_are_not(cluster, policies):
    agent = cluster.agent(*ONLY_POLICIES)
    image = cluster.stub_image()
    policies.apply("told", namespaceSelector=in_namespace(cluster),
                   containers={"include": ["*"], "exclude": ["istio-*"]})
    traced = [cluster.workload(image, "mixed", ["--calls", 1]) for _ in range(2)]
    excluded = cluster.workload(image, "mixed", ["--calls", 1], container="istio-proxy", gpus=0)
    for pod in [*traced, excluded]:
        agent.wait_attached(pod.wait_ready(), len(image.libraries))
    status = wait_status("gtp", "told", nodes=1, pods=3, processes=2)
    assert condition(status)["status"] == "True", status
    plain_pod(cluster, "plain")
    status = wait_status("gtp", "told", nodes=1, pods=4, processes=2, ready="1/1")
    assert status["observedGeneration"] == get("gtp", "told")["metadata"]["generation"]
    untraced = {(row["pod"], row.get("container", ""), row["reason"]): row["message"]
                for row in status["untraced"]}
    assert set(untraced) == {(excluded.pod, "istio-proxy", "ContainerExcluded"),
                             ("plain", "", "NoLibrary")}, untraced
    described = kubectl("describe", "gtp", "told")
    for text in ("ContainerExcluded", "NoLibrary", "no process maps libnccl", excluded.pod, "plain"):
        assert text in described, described
    head, row = (line.split() for line in kubectl("get", "gtp", "told").splitlines())
    shown = dict(zip(head, row))
    assert (shown["NODES"], shown["PODS"], shown["PROCESSES"], shown["READY"]) == (
        "1", "4", "2", "True"), shown
    policies.apply("told", namespaceSelector=in_namespace(cluster),
                   containers={"include": ["*"], "exclude": ["istio-*"]},
                   probes={"nccl": {"enabled": False}, "cudaMemcpy": {"enabled": False}})
    status = wait_status("gtp", "told", nodes=1, processes=0)
    rows = {(row["pod"], row["reason"]) for row in status["untraced"]}
    assert {(pod.pod, "ProbesOff") for pod in traced} <= rows, rows


def test_a_library_that_is_refused_is_told_by_the_policy_and_by_an_event(cluster, policies):
    agent = cluster.agent(*ONLY_POLICIES)
    image = cluster.stub_image()
    policies.apply("refused", namespaceSelector=in_namespace(cluster))
    folder = broken_library(cluster.directory)
    part = workload_container("main", image, "mixed", ["--calls", 1], env=[
        {"name": "LD_PRELOAD", "value": "/broken/libnccl.so.2"}])
    part["volumeMounts"].append({"name": "broken", "mountPath": "/broken"})
    cluster.pod("unlucky", [part], volumes=[{"name": "broken", "hostPath": {"path": folder}}])
    pod = cluster.workload_of("unlucky", "main", image)
    agent.wait_attached(pod.wait_ready(), len(image.libraries))
    wait_until(lambda: condition(status_of("gtp", "refused")).get("reason") == "NotAllTraced",
               lambda: f"not all traced: {status_of('gtp', 'refused')}", 40, interval=0.3)
    status = wait_status("gtp", "refused", nodes=1, pods=1, ready="1/1")
    row = status["untraced"][0]
    assert (row["pod"], row["reason"]) == ("unlucky", "AttachFailed"), status
    assert "/broken/libnccl.so.2" in row["message"], row
    assert condition(status)["status"] == "False", status
    assert "AttachFailed" in kubectl("describe", "gtp", "refused")

    def events():
        return [event for event in get_all("events", cluster.namespace)
                if event["involvedObject"]["name"] == "unlucky" and event["reason"] == "NotTraced"]

    wait_until(events, "an Event of the pod", 10)
    event = events()[0]
    assert event["type"] == "Warning" and "/broken/libnccl.so.2" in event["message"], event
    assert event["source"] == {"component": "ingero", "host": "node1"}
    assert "NotTraced" in kubectl("describe", "pod", "unlucky", "-n", cluster.namespace)


def holder():
    return (get("lease", LEASE, NAMESPACE) or {"spec": {}})["spec"].get("holderIdentity", "")


def ask_for_node_label(value):
    selector = {"spec": {"template": {"spec": {"nodeSelector": {"ingero-test": value}}}}}
    kubectl("patch", "daemonset", "ingero", "-n", NAMESPACE, "--type=merge", "-p",
            json.dumps(selector))


@pytest.fixture
def second_agent(tmp_path):
    """On the host, as if of another node; whoever is elected writes for all."""
    made = Agent(tmp_path, "--kubernetes", "on", "--kubeconfig", environment()["KUBECONFIG"],
                 "--lease", LEASE, "--namespace", NAMESPACE, "--pod-name", "other",
                 "--node-name", "node1", command="agent")
    yield made
    try:
        made.stop()
    except subprocess.TimeoutExpired:
        made.kill()


def test_one_agent_is_elected_and_the_next_one_takes_over(cluster, policies, request):
    agent = cluster.agent(*ONLY_POLICIES)
    wait_until(lambda: holder() == agent.name, lambda: f"the lease's holder: {holder()}", 20)
    wait_until(lambda: agent.state()["reports"]["is_leader"], "the agent leads")
    other = request.getfixturevalue("second_agent").wait_ready()
    wait_until(lambda: other.state()["reports"]["leader"] == agent.name, "the other one knows", 20)
    assert not other.state()["reports"]["is_leader"] and holder() == agent.name
    try:
        # No agent may run anywhere: the pod goes, and gives the lease back.
        ask_for_node_label("none")
        wait_until(lambda: holder() == "other", lambda: f"the lease's holder: {holder()}", 30)
        wait_until(lambda: other.state()["reports"]["is_leader"], "the other one leads")
        policies.apply("folded", namespaceSelector=in_namespace(cluster))
        wait_status("gtp", "folded", nodes=1)
    finally:
        ask_for_node_label(None)  # helm would leave it
