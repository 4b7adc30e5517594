# SPDX-License-Identifier: Apache-2.0
"""Values of the chart that act in the cluster: who may write what, quotas, roles, and what an installation
says that finds no node for an agent or a namespace that refuses it."""
import json
import re
import ssl
import urllib.error
import urllib.request

import pytest
import yaml
from e2e.harness.waiting import wait_until
from harness.chart import with_values
from harness.kubectl import REPOSITORY, apply, containerd, environment, get, helm, kubectl, run
from harness.kubernetes_agent import CHART, IMAGE, NAMESPACE, SELECTOR, KubernetesAgent, restart, uninstall
from status_k8s_test import wait_status

REPORT = {"apiVersion": "ingero.io/v1alpha1", "kind": "GpuTraceNode"}


class Holder:
    """Whoever has a token of the agents' account. kubectl would take the kubeconfig's certificate, and
    reads before it patches, which agents may not."""

    def __init__(self, *bound):
        with open(environment()["KUBECONFIG"], encoding="utf-8") as file:
            self._cluster = yaml.safe_load(file)["clusters"][0]["cluster"]
        self._token = kubectl("create", "token", "ingero", "-n", NAMESPACE, *bound).strip()

    @classmethod
    def of(cls, agent):
        pod = agent.pod["metadata"]
        return cls("--bound-object-kind=Pod", f"--bound-object-name={pod['name']}",
                   f"--bound-object-uid={pod['uid']}")

    def _send(self, method, path, body, kind):
        request = urllib.request.Request(
            f"{self._cluster['server']}/apis/ingero.io/v1alpha1/gputracenodes{path}",
            json.dumps(body).encode(),
            {"Authorization": f"Bearer {self._token}", "Content-Type": kind}, method=method)
        context = ssl.create_default_context(cafile=self._cluster["certificate-authority"])
        try:
            with urllib.request.urlopen(request, timeout=20, context=context):
                return ""
        except urllib.error.HTTPError as refused:
            return json.loads(refused.read())["message"]

    def write_report(self, node, **status):
        """Nothing, or why not."""
        return self._send("PATCH", f"/{node}/status", {"status": status}, "application/merge-patch+json")

    def create_report(self, node):
        return self._send("POST", "", {**REPORT, "metadata": {"name": node}}, "application/json")


@pytest.fixture
def another_node():
    """A report that is not of this cluster's node; agents delete it when they find no such node."""
    name = "chart-test-node"
    apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    yield name
    run("kubectl", "delete", "gtn,node", name, "--ignore-not-found", check=False)


def test_an_agent_writes_the_report_of_its_own_node_alone(cluster, another_node):
    assert Holder.of(cluster.agent()).create_report(another_node) == "", "RBAC alone lets it"
    agent = cluster.agent("admissionPolicy.enabled=true")
    taken, of_nobody = Holder.of(agent), Holder()
    refusal = f"the agent of node node1 may not write the report of node {another_node}"
    # The API server takes a moment to know a new policy.
    wait_until(lambda: refusal in taken.write_report(another_node, pods=7),
               lambda: f"refused: {taken.write_report(another_node, pods=7)}", 20)
    assert refusal.replace(another_node, "new") in taken.create_report("new")
    assert "names no node" in of_nobody.write_report("node1", pods=7)
    assert taken.write_report("node1", kernel="of its own") == ""
    # People are not meant, and the agent makes and changes its own.
    kubectl("patch", "gtn", another_node, "--subresource=status", "--type=merge", "-p",
            '{"status": {"pods": 3}}')
    kubectl("delete", "gtn", "node1")
    wait_status("gtn", "node1", agentPod=restart().name)


def test_the_quota_is_of_the_agents_class_and_counts_them(cluster):
    cluster.agent("resourceQuota.enabled=true")

    def used():
        return get("resourcequota", "ingero", NAMESPACE).get("status", {}).get("used")

    wait_until(lambda: used() == {"pods": "1"}, lambda: f"one pod: {used()}", 20)


def test_view_and_edit_of_the_cluster_reach_policies_and_reports(cluster):
    def may(who, verb, what):
        return run("kubectl", "auth", "can-i", verb, what, f"--as=chart-test-{who}",
                   check=False).stdout.strip() == "yes"

    names = [f"chart-test-{role}" for role in ("view", "edit", "admin")]
    for name in names:
        kubectl("create", "clusterrolebinding", name, f"--clusterrole={name.split('-')[-1]}",
                f"--user={name}")
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
        # A value that begins with a brace is a list to --set.
        'extraObjects[0].metadata.name=more-{{ include "ingero.fullname" . }}',
        "extraObjects[0].data.key=value",
        "extraVolumes[0].name=more", "extraVolumes[0].configMap.name=more-ingero",
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
        notes = install("lookups=false")
        assert "of 1" not in notes and "WARNING" not in notes, notes
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
        run("kubectl", "delete", "pod", "ingero-test", "-n", NAMESPACE, "--grace-period=1",
            "--ignore-not-found", check=False)


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


def required(*terms):
    return {"gpuNodesOnly": False, "affinity": {"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}}


def term(key, operator, *values, part="matchExpressions"):
    return {part: [{"key": key, "operator": operator, **({"values": list(values)} if values else {})}]}


# Of three nodes beside node1, with chart-test/gpus 4, 8 and 16; the second is of AMD, the third has no pool.
CHOSEN = [
    ({"gpuNodesOnly": False}, 4),
    ({}, 1),
    ({"gpuNodeLabels": ["nfd-amd"]}, 1),
    ({"gpuNodeLabels": ["gpu-feature-discovery", "nfd-amd", "nfd-nvidia"]}, 2),
    ({"gpuNodeLabels": ["nfd-amd"], "nodeSelector": {"chart-test/pool": "b"}}, 0),
    ({"gpuNodesOnly": False, "nodeSelector": {"chart-test/pool": "a"}}, 2),
    (required(term("chart-test/gpus", "Gt", "7")), 2),
    (required(term("chart-test/gpus", "Lt", "7")), 1),
    (required(term("chart-test/gpus", "In", "4", "16")), 2),
    (required(term("chart-test/gpus", "NotIn", "4", "16")), 2),
    (required(term("chart-test/pool", "Exists")), 2),
    (required(term("chart-test/pool", "DoesNotExist")), 2),
    (required(term("metadata.name", "In", "chart-test-2", part="matchFields")), 1),
    (required({**term("chart-test/pool", "Exists"), **term("metadata.name", "In", "chart-test-2",
                                                            part="matchFields")}), 0),
    (required(term("chart-test/gpus", "In", "4"), term("chart-test/gpus", "In", "16")), 2),
    (required({}), 0),
]


def test_nodes_are_counted_as_the_scheduler_chooses_them(cluster, tmp_path):
    labels = [{"gpus": "4", "pool": "a"}, {"gpus": "8", "pool": "a"}, {"gpus": "16"}]
    names = [f"chart-test-{number}" for number in range(3)]
    apply(*[{"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {
        "kubernetes.io/os": "linux", **{f"chart-test/{key}": value for key, value in own.items()},
        **({"feature.node.kubernetes.io/pci-1200_1002.present": "true"} if own["gpus"] == "8" else {})}}}
        for name, own in zip(names, labels)])
    wrong = []
    try:
        for values, count in CHOSEN:
            notes = helm("install", "chart-test", CHART, "-n", cluster.namespace, "--dry-run=server",
                         "--take-ownership", "--set", "crds.install=false", *with_values(tmp_path, values))
            if f": {count} of 4 now." not in notes or ("WARNING: none of 4" in notes) != (count == 0):
                wrong.append((values, count, notes.split("NOTES:")[1][:300]))
    finally:
        kubectl("delete", "node", *names)
    assert not wrong, wrong


def test_the_documented_command_runs_the_agent_where_its_image_was_put_on_the_node(cluster):
    # pylint: disable=unused-argument
    uninstall()
    with open(f"{CHART}/Chart.yaml", encoding="utf-8") as file:
        name = f"ghcr.io/ingero/ingero:{yaml.safe_load(file)['appVersion']}"
    containerd("images", "tag", "--force", IMAGE, name)
    try:
        with open(f"{REPOSITORY}/docs/kubernetes.md", encoding="utf-8") as file:
            page = file.read()
        assert f"hack/image {name} --tar" in page
        command, = re.findall(r"^helm install ingero helm/ingero -n ingero --create-namespace$", page, re.M)
        run(*command.replace("helm/ingero", CHART).split())
        agent = KubernetesAgent().wait_ready()
        assert agent.pod["spec"]["containers"][0]["image"] == name
    finally:
        uninstall()
        containerd("images", "rm", name)


def test_an_installer_who_may_not_list_nodes_installs_where_roles_are_made_by_others(cluster):
    who = "chart-test-installer"
    kubectl("create", "clusterrole", who, "--verb=get,list", "--resource=gputracepolicies.ingero.io")
    for number, role in enumerate((who, "admin")):
        kubectl("create", "clusterrolebinding", f"{who}-{number}", f"--clusterrole={role}", f"--user={who}")
    try:
        assert run("kubectl", "auth", "can-i", "list", "nodes", f"--as={who}", check=False).returncode != 0
        notes = helm("install", who, CHART, "-n", cluster.namespace, "--dry-run=server",
                     "--kube-as-user", who, "--set",
                     "crds.install=false,rbac.create=false,defaultPolicy.enabled=false")
        assert "nvidia.com/gpu.count.\n" in notes and "WARNING" not in notes, notes
    finally:
        kubectl("delete", "clusterrolebinding", f"{who}-0", f"{who}-1")
        kubectl("delete", "clusterrole", who)


def test_the_commands_of_the_page_of_alerts_work(cluster):
    agent = cluster.agent()
    wait_status("gtn", "node1", agentPod=agent.name)
    with open(f"{REPOSITORY}/docs/alerts.md", encoding="utf-8") as file:
        blocks = re.findall(r"^```\n(.*?)^```", file.read(), re.M | re.S)
    names = {"NODE": "node1", "POD": agent.name, "NAMESPACE": NAMESPACE, "WORKLOAD_POD": agent.name,
             "CONTAINER": "ingero"}
    lines = [re.sub(r"\b[A-Z_]+\b", lambda m: names.get(m[0], m[0]), line)
             for block in blocks for line in block.splitlines()]
    wrong = []
    for line in lines:
        # Nothing has ended before, and a forwarded port needs somebody who ends it.
        if "--previous" in line or "port-forward" in line or "localhost:9090" in line:
            continue
        done = run("bash", "-c", line, check=False)
        print(line, "->", done.returncode, done.stdout[:200])
        # `ingero check` tells by its status that something is missing.
        if done.returncode != 0 and "ingero check" not in line or "error" in done.stderr.lower():
            wrong.append((line, done.returncode, done.stderr))
    assert not wrong and len(lines) >= 12, wrong
