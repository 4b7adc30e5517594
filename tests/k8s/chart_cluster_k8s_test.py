# SPDX-License-Identifier: Apache-2.0
"""Values of the chart that act in the cluster: who may write what, quotas, roles, and what an installation
says that finds no node for an agent or a namespace that refuses it."""
import json
import re

import pytest
import yaml
from e2e.harness.waiting import wait_until
from harness.kubectl import apply, environment, get, helm, kubectl, run
from harness.kubernetes_agent import CHART, IMAGE, NAMESPACE, SELECTOR, KubernetesAgent, uninstall
from status_k8s_test import wait_status

REPORT = {"apiVersion": "ingero.io/v1alpha1", "kind": "GpuTraceNode"}


class TokenOnly:
    """kubectl as whoever has a token of the agents' account: the kubeconfig's certificate would win."""

    def __init__(self, folder, *bound):
        with open(environment()["KUBECONFIG"], encoding="utf-8") as file:
            config = yaml.safe_load(file)
        token = kubectl("create", "token", "ingero", "-n", NAMESPACE, *bound).strip()
        config["users"][0]["user"] = {"token": token}
        self.path = folder / f"config-{len(list(folder.iterdir()))}"
        self.path.write_text(yaml.safe_dump(config))

    def write_report(self, node, **status):
        """Nothing, or why not."""
        done = run("kubectl", "--kubeconfig", self.path, "patch", "gtn", node, "--subresource=status",
                   "--type=merge", "-p", json.dumps({"status": status}), check=False)
        return "" if done.returncode == 0 else done.stderr

    def create_report(self, node):
        done = run("kubectl", "--kubeconfig", self.path, "create", "-f", "-", check=False,
                   text_input=json.dumps({**REPORT, "metadata": {"name": node}}))
        return "" if done.returncode == 0 else done.stderr


@pytest.fixture
def another_node():
    """A report that is not of this cluster's node; agents delete it when they find no such node."""
    name = "chart-test-node"
    apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    yield name
    run("kubectl", "delete", "gtn,node", name, "--ignore-not-found", check=False)


def test_an_agent_writes_the_report_of_its_own_node_alone(cluster, tmp_path, another_node):
    agent = cluster.agent()
    pod = agent.pod["metadata"]
    of_pod = ["--bound-object-kind=Pod", f"--bound-object-name={pod['name']}", f"--bound-object-uid={pod['uid']}"]
    assert TokenOnly(tmp_path, *of_pod).create_report(another_node) == "", "RBAC alone lets it"
    agent = cluster.agent("admissionPolicy.enabled=true")
    pod = agent.pod["metadata"]
    of_pod[1:] = [f"--bound-object-name={pod['name']}", f"--bound-object-uid={pod['uid']}"]
    taken, of_nobody = TokenOnly(tmp_path, *of_pod), TokenOnly(tmp_path)
    refusal = f"the agent of node node1 may not write the report of node {another_node}"
    # The API server takes a moment to know a new policy.
    wait_until(lambda: refusal in taken.write_report(another_node, pods=7),
               lambda: f"refused: {taken.write_report(another_node, pods=7)}", 20)
    assert refusal.replace(another_node, "new") in taken.create_report("new")
    assert "names no node" in of_nobody.write_report("node1", pods=7)
    assert taken.write_report("node1", kernel="of its own") == ""
    # People and controllers are not meant, and the agent goes on.
    kubectl("patch", "gtn", another_node, "--subresource=status", "--type=merge", "-p", '{"status": {"pods": 3}}')
    kubectl("delete", "gtn", "node1")
    wait_status("gtn", "node1", agentPod=agent.name)


def test_the_quota_is_of_the_agents_class_and_counts_them(cluster):
    cluster.agent("resourceQuota.enabled=true")
    used = wait_until(lambda: (get("resourcequota", "ingero", NAMESPACE) or {}).get("status", {}).get("used"),
                      "a quota with a status", 20)
    wait_until(lambda: get("resourcequota", "ingero", NAMESPACE)["status"]["used"] == {"pods": "1"},
               lambda: f"one pod: {used}", 20)


def test_view_and_edit_of_the_cluster_reach_policies_and_reports(cluster):
    def may(who, verb, what):
        return run("kubectl", "auth", "can-i", verb, what, f"--as=chart-test-{who}",
                   check=False).stdout.strip() == "yes"

    names = [f"chart-test-{role}" for role in ("view", "edit", "admin")]
    for name in names:
        kubectl("create", "clusterrolebinding", name, f"--clusterrole={name.split('-')[-1]}", f"--user={name}")
    try:
        cluster.agent()
        assert not may("view", "list", "gtp") and not may("admin", "create", "gtp")
        cluster.agent("rbac.aggregateRoles=true")
        wait_until(lambda: may("view", "list", "gtp") and may("edit", "create", "gtp"), "aggregated", 20)
        for who in ("view", "edit", "admin"):
            assert may(who, "get", "gtn") and may(who, "watch", "gtp"), who
            assert may(who, "patch", "gtp") == (who != "view"), who
            assert not may(who, "create", "gtn") and not may(who, "patch", "gtn/status"), who
    finally:
        kubectl("delete", "clusterrolebinding", *names)


def test_an_agent_without_probes_of_its_own_runs_beside_more_objects_and_volumes(cluster):
    agent = cluster.agent(
        "livenessProbe=null", "readinessProbe=null", "resources=null", "minReadySeconds=1",
        "extraObjects[0].apiVersion=v1", "extraObjects[0].kind=ConfigMap",
        'extraObjects[0].metadata.name={{ include "ingero.fullname" . }}-more', "extraObjects[0].data.key=value",
        "extraVolumes[0].name=more", "extraVolumes[0].configMap.name=ingero-more",
        "extraVolumeMounts[0].name=more", "extraVolumeMounts[0].mountPath=/more",
        "podSecurityContext.supplementalGroups[0]=44", "service.internalTrafficPolicy=Local")
    container = agent.pod["spec"]["containers"][0]
    assert not {"livenessProbe", "readinessProbe"} & set(container) and container["resources"] == {}
    assert kubectl("exec", agent.name, "-n", NAMESPACE, "--", "cat", "/more/key") == "value"
    groups = kubectl("exec", agent.name, "-n", NAMESPACE, "--", "bash", "-c", "id -G").split()
    assert "44" in groups, groups
    assert agent.restarts() == 0


def install(*values):
    """What Helm prints; whether agents run is not waited for."""
    repository, _, tag = IMAGE.rpartition(":")
    settings = [f"image.repository={repository}", f"image.tag={tag}", "image.pullPolicy=Never", *values]
    return helm("upgrade", "--install", "ingero", CHART, "-n", NAMESPACE, "--create-namespace",
                "--take-ownership", *[text for setting in settings for text in ("--set", setting)])


def commands_of(said, verb):
    return re.findall(rf"^ *(kubectl {verb} .*?)(?:  +#.*)?$", said, re.M)


def test_without_a_labelled_node_notes_and_helm_test_say_how_many_match_and_how_to_label_one(cluster):
    uninstall()
    kubectl("label", "node", "node1", "nvidia.com/gpu.present-")
    try:
        notes = install()
        assert "0 of 1 now" in notes and "none of 1 nodes has the labels" in notes, notes
        done = run("helm", "test", "ingero", "-n", NAMESPACE, "--timeout", "60s", seconds=90, check=False)
        said = done.stdout + done.stderr
        assert done.returncode != 0 and "timed out" not in said, said
        assert "none of 1 nodes has the labels" in said, said
        label, = commands_of(notes, "label node")
        assert label in said, said
        kubectl(*label.replace("NODE", "node1").split()[1:])
        agent = KubernetesAgent().wait_ready()
        assert "1 of 1 now" in install(), "counted anew"
        assert agent.restarts() == 0
    finally:
        kubectl("label", "node", "node1", "nvidia.com/gpu.present=true", "--overwrite")
        run("kubectl", "delete", "pod", "ingero-test", "-n", NAMESPACE, "--grace-period=1", "--ignore-not-found",
            check=False)


def test_a_namespace_that_refuses_agents_is_told_with_the_command_that_mends_it(cluster):
    uninstall()
    run("kubectl", "create", "namespace", NAMESPACE, check=False)
    key = "pod-security.kubernetes.io/enforce"
    kubectl("label", "namespace", NAMESPACE, f"{key}=baseline", "--overwrite")
    try:
        notes = install()
        assert "enforces pod security level baseline" in notes, notes
        assert not get_pods(), "the level does refuse it"
        kubectl(*commands_of(notes, "label namespace")[0].split()[1:])
        assert "enforces" not in install(f"podAnnotations.again={cluster.namespace}")
        KubernetesAgent().wait_ready()
    finally:
        kubectl("label", "namespace", NAMESPACE, f"{key}-")


def get_pods():
    return kubectl("get", "pods", "-n", NAMESPACE, "-l", SELECTOR, "-o", "name").split()
