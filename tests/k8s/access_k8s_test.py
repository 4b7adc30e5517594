# SPDX-License-Identifier: Apache-2.0
"""What the agent may ask of the API server: no verb too few, none too many, and none at all."""
import json

import pytest
from e2e.harness.waiting import wait_until
from harness.audit import Audit
from harness.kubectl import apply, get, kubectl, run
from harness.kubernetes_agent import NAMESPACE, SELECTOR, KubernetesAgent, restart
from harness.pod_comparison import check_exact_pods
from status_k8s_test import condition, status_of, wait_status

# Where a verb that is missing is told: the agent is not ready, or it is and says so on /readyz, or in
# `reports` of /debug/state, or in its log alone.
NOT_READY, READY, REPORTS, LOG = "not ready", "ready", "reports", "log"
CLUSTER_VERBS = {
    ("pods", "list"): NOT_READY, ("pods", "watch"): READY,
    ("namespaces", "list"): NOT_READY, ("namespaces", "watch"): READY,
    ("nodes", "list"): NOT_READY, ("nodes", "watch"): READY,
    ("nodes", "get"): LOG,
    ("events", "create"): REPORTS,
    ("gputracepolicies", "list"): NOT_READY, ("gputracepolicies", "watch"): READY,
    ("gputracepolicies/status", "patch"): REPORTS,
    ("gputracenodes", "list"): LOG, ("gputracenodes", "watch"): LOG,
    ("gputracenodes", "create"): REPORTS, ("gputracenodes", "patch"): REPORTS,
    ("gputracenodes", "delete"): LOG,
    ("gputracenodes/status", "patch"): REPORTS,
    ("clusterroles", "get"): REPORTS,
}
OWN_VERBS = {
    ("configmaps", "list"): NOT_READY, ("configmaps", "watch"): READY,
    ("leases", "create"): REPORTS, ("leases", "get"): REPORTS, ("leases", "update"): REPORTS,
}


def single_rules(role):
    """One rule for each resource and verb."""
    rules = []
    for rule in role["rules"]:
        for resource in rule["resources"]:
            for verb in rule["verbs"]:
                rules.append({**rule, "resources": [resource], "verbs": [verb]})
    return rules


def taken_together(expected):
    """Verbs that are taken away at once: none of what is told at /readyz hides another's lack."""
    together = [[verb for verb, place in expected.items() if place == told]
                for told in (NOT_READY, READY)]
    return together + [[verb] for verb, place in expected.items() if place in (REPORTS, LOG)]


def places(agent, text):
    """Where the agent says it."""
    status, readiness = agent.get("/readyz")
    if text in readiness:
        yield NOT_READY if status == 503 else READY
    if text in json.dumps(agent.state()["reports"]).replace('\\"', '"'):
        yield REPORTS
    if text in agent.stderr:
        yield LOG


def set_rules(kind, rules):
    where = ["-n", NAMESPACE] if kind == "role" else []
    kubectl("patch", kind, "ingero", *where, "--type=merge", "-p", json.dumps({"rules": rules}))


@pytest.fixture
def provoked(cluster):
    """What makes an agent use each verb that it does not need every time."""
    agent = cluster.agent()
    config_map = get("configmap", "ingero-config", NAMESPACE)
    good = config_map["data"]["config.yaml"]

    def make():
        run("kubectl", "delete", "gtn", "--all", check=False)
        run("kubectl", "delete", "lease", "ingero-leader", "-n", NAMESPACE, check=False)
        apply({"apiVersion": "ingero.io/v1alpha1", "kind": "GpuTraceNode",
               "metadata": {"name": "taken-away"}})

    def edit(text):
        kubectl("patch", "configmap", "ingero-config", "-n", NAMESPACE, "--type=merge", "-p",
                json.dumps({"data": {"config.yaml": text}}))

    edit(good + "log_level: loud\n")  # an Event at every start
    yield agent, make
    edit(good)
    run("kubectl", "delete", "gtn", "taken-away", "--ignore-not-found", check=False)


@pytest.mark.parametrize("kind, expected", [("clusterrole", CLUSTER_VERBS), ("role", OWN_VERBS)])
def test_each_verb_is_needed_and_its_lack_is_told(provoked, kind, expected):
    _, make = provoked
    before = get(kind, "ingero", NAMESPACE if kind == "role" else None)
    rules = single_rules(before)
    found = [(rule["resources"][0], rule["verbs"][0]) for rule in rules]
    assert sorted(found) == sorted(expected), "the table above is not that of the chart"
    wrong = []
    try:
        for missing in taken_together(expected):
            make()
            set_rules(kind, [rule for rule, which in zip(rules, found) if which not in missing])
            agent = restart()
            for resource, verb in missing:
                text = f'cannot {verb} resource "{resource}"'
                want = expected[resource, verb]
                try:
                    wait_until(lambda: want in places(agent, text), "told", 20, interval=0.2)
                    print(f"{resource} {verb}: {sorted(set(places(agent, text)))}")
                except AssertionError:
                    wrong.append((resource, verb, want, list(places(agent, text)),
                                  agent.get("/readyz"), agent.state()["reports"]))
            assert agent.metrics().value("process_cpu_seconds_total") > 0
            if agent.restarts():
                wrong.append((missing, "restarted"))
    finally:
        set_rules(kind, before["rules"])
    assert not wrong, "\n".join(map(str, wrong))


def test_nothing_is_refused_in_normal_operation(cluster):
    audit = Audit()
    agent = cluster.agent()
    workload = cluster.workload(cluster.stub_image(), "mixed", ["--calls", 2])
    check_exact_pods(agent, (workload, cluster.run(agent, workload)[0]))
    wait_status("gtn", "node1", agentPod=agent.name, pods=1)
    wait_status("gtp", "default", nodes=1, processes=1)
    kubectl("delete", "pod", agent.name, "-n", NAMESPACE)
    KubernetesAgent().wait_ready()
    used = {(request["resource"], request["verb"]) for request in audit.requests()}
    print(sorted(used))
    assert audit.refused() == []


def test_an_agent_without_access_says_so_and_counts_by_container(cluster):
    cluster.agent()
    binding = get("clusterrolebinding", "ingero")
    kubectl("delete", "clusterrolebinding", "ingero")
    try:
        agent = restart()
        wait_until(lambda: "pods not known yet: " in agent.get("/readyz")[1],
                   lambda: f"the reason: {agent.get('/readyz')}", 20)
        status, text = agent.get("/readyz")
        assert status == 503 and 'cannot list resource "pods"' in text, text
        workload = cluster.workload(cluster.stub_image(), "memcpy", ["--calls", 40])
        tallies = cluster.run(agent, workload)
        made = sum(row["calls"] for row in tallies[0]["functions"])
        container = workload.container_id()

        def counted():
            return agent.metrics().by("gpu_cuda_operation_count_total", "container")

        found = wait_until(lambda: counted().get(container) == made and counted(),
                           lambda: f"{made} calls of {container}: {counted()}", 25, interval=0.5)
        print(found)
        before = agent.metrics().value("process_cpu_seconds_total")
        wait_until(lambda: not pod_is_ready(), "Kubernetes sees that it is not ready", 20)
        used = agent.metrics().value("process_cpu_seconds_total") - before
        print(f"{used:.3f} s of CPU meanwhile;", text)
        assert agent.restarts() == 0
    finally:
        for key in ("uid", "resourceVersion", "creationTimestamp"):
            binding["metadata"].pop(key)
        apply(binding)
    wait_until(lambda: agent.get("/readyz")[0] == 200, "ready with access, without a restart", 15)
    # They were told without a pod once, and no counter falls.
    check_exact_pods(agent, (workload, tallies[0]), losses={"unknown_pod": made})


def pod_is_ready():
    pods = json.loads(kubectl("get", "pods", "-n", NAMESPACE, "-l", SELECTOR, "-o", "json"))["items"]
    return any(condition["type"] == "Ready" and condition["status"] == "True"
               for pod in pods for condition in pod["status"]["conditions"])


def test_without_a_policy_and_without_a_gpu_pod_the_agent_is_ready(cluster):
    agent = cluster.agent("defaultPolicy.enabled=false", "config.default_action=ignore")
    assert agent.get("/readyz")[0] == 200
    wait_until(pod_is_ready, "Kubernetes sees that it is ready", 15)
    status = wait_status("gtn", "node1", agentPod=agent.name, pods=0, processes=0)
    assert not status.get("policies"), status
    wait_until(lambda: condition(status_of("gtn", "node1"))["reason"] == "WaitingForProcesses",
               lambda: f"ready: {status_of('gtn', 'node1')}", 10)
    assert condition(status_of("gtn", "node1"))["status"] == "True"
