# SPDX-License-Identifier: Apache-2.0
"""GpuTracePolicy: what is applied, changed and deleted while pods call, and who is selected."""
import json
import time

import pytest

from e2e.harness.comparison import differences
from e2e.harness.waiting import wait_until
from harness.kubectl import apply, kubectl, run
from harness.pod_comparison import OfPod, check_exact_pods

# No policy of the chart, and what no policy names is left alone.
ONLY_POLICIES = ["defaultPolicy.enabled=false", "config.default_action=ignore"]
EVERY_NAME = "gpu_cuda_operation_count_total"


def policy(name, **spec):
    return {"apiVersion": "ingero.io/v1alpha1", "kind": "GpuTracePolicy",
            "metadata": {"name": name}, "spec": spec}


@pytest.fixture
def policies():
    """apply(NAME, FIELDS...) and delete(NAME); the rest goes when the test ends."""
    names = set()

    class Policies:
        @staticmethod
        def apply(name, **spec):
            names.add(name)
            apply(policy(name, **spec))

        @staticmethod
        def delete(name):
            kubectl("delete", "gtp", name)

    yield Policies
    for name in names:
        run("kubectl", "delete", "gtp", name, "--ignore-not-found", check=False)


def in_namespace(cluster):
    return {"matchLabels": {"kubernetes.io/metadata.name": cluster.namespace}}


def calls(agent, workload, **labels):
    return agent.metrics().value(EVERY_NAME, **workload.labels(), **labels)


def state_of(agent, workload):
    """traced, untraced or waiting, and why; None before the agent knows the container."""
    for row in agent.state()["pods"]:
        if row.get("pod") == workload.pod and row["container"] == workload.container:
            return row["state"], row["reason"]
    return None


def wait_state(agent, workload, wanted, seconds=10):
    wait_until(lambda: (state_of(agent, workload) or [""])[0] == wanted,
               lambda: f"{workload} {wanted}: {state_of(agent, workload)}", seconds)


def run_inside(cluster, workload, scenario, number, image, *options):
    """One more process in the same container, with a tally of its own."""
    tally = f"/out/{workload.container}/tally-{number}.json"
    libraries = [text for kind, path in image.libraries.items() for text in (f"--{kind}", path)]
    kubectl("exec", workload.pod, "-n", cluster.namespace, "--", "/usr/bin/ingero_workload",
            *libraries, "--scenario", scenario, "--tally", tally, *options)
    with open(workload.path(f"tally-{number}.json"), encoding="utf-8") as file:
        return json.load(file)


def test_exactly_the_spans_that_a_policy_covers_are_counted(cluster, policies):
    agent = cluster.agent(*ONLY_POLICIES)
    image = cluster.stub_image()
    pod = cluster.workload(image, "mixed", ["--calls", 1], labels={"app": "train"})
    agent.wait_attached(pod.wait_ready(), len(image.libraries))
    wait_state(agent, pod, "untraced")
    assert "no policy matches" in state_of(agent, pod)[1]
    covered = []
    run_inside(cluster, pod, "mixed", 0, image, "--calls", "2")
    for span in (1, 2):
        policies.apply("spans", namespaceSelector=in_namespace(cluster))
        wait_state(agent, pod, "traced")
        covered.append(run_inside(cluster, pod, "mixed", span, image, "--calls", span))
        policies.delete("spans")
        wait_state(agent, pod, "untraced")
        run_inside(cluster, pod, "mixed", 9, image, "--calls", "3")
    check_exact_pods(agent, (pod, covered))


def test_a_policy_takes_effect_within_a_second_while_a_pod_calls_without_pause(cluster, policies):
    agent = cluster.agent(*ONLY_POLICIES)
    image = cluster.stub_image()
    pod = cluster.workload(image, "memcpy", ["--seconds", 120])
    agent.wait_attached(pod.wait_ready(), len(image.libraries))
    pod.start()
    wait_state(agent, pod, "untraced")
    assert calls(agent, pod) == 0
    policies.apply("pace", namespaceSelector=in_namespace(cluster))
    applied = time.monotonic()
    wait_until(lambda: calls(agent, pod) > 0, "counted calls", 5, interval=0.02)
    on = time.monotonic() - applied
    policies.delete("pace")
    time.sleep(1)
    frozen = calls(agent, pod)
    time.sleep(1)
    assert calls(agent, pod) == frozen, "a second after the policy was deleted calls still count"
    print(f"counted {on:.2f} s after kubectl apply came back; {frozen:.0f} calls in the span")
    assert on < 1


def test_policies_that_change_all_the_time_lose_and_double_nothing(cluster, policies):
    agent = cluster.agent(*ONLY_POLICIES)
    policies.apply("base", namespaceSelector=in_namespace(cluster))
    image = cluster.stub_image()
    pod = cluster.workload(image, "memcpy", ["--seconds", 12], labels={"app": "train"})
    agent.wait_attached(pod.wait_ready(), len(image.libraries))
    wait_state(agent, pod, "traced")
    pod.start()
    ends = time.monotonic() + 10
    changes = 0
    while time.monotonic() < ends:
        policies.apply("second", podSelector={"matchLabels": {"app": "train"}},
                       slowCallThreshold=f"{1 + changes}ms")
        policies.apply("base", namespaceSelector=in_namespace(cluster),
                       limits={"maxSeries": 1000 + changes})
        policies.delete("second")
        changes += 3
    tally = pod.tally()
    print(f"{changes} changes during {sum(f['calls'] for f in tally['functions'])} calls")
    check_exact_pods(agent, (pod, tally))


def test_selectors_name_only_what_they_say(cluster, policies):
    agent = cluster.agent(*ONLY_POLICIES)
    image = cluster.stub_image()
    kubectl("label", "namespace", cluster.namespace, "team=research")
    chosen = cluster.workload(image, "mixed", ["--calls", 1], name="chosen", gpus=0,
                              labels={"app": "train", "tier": "gold"})
    other_label = cluster.workload(image, "mixed", ["--calls", 1], name="other-label", gpus=0,
                                   labels={"app": "serve"})
    excluded = cluster.workload(image, "mixed", ["--calls", 1], name="excluded", gpus=0,
                                container="istio-proxy", labels={"app": "train"})
    everyone = [chosen, other_label, excluded]
    selection = {"namespaceSelector": {"matchLabels": {"team": "research"}},
                 "podSelector": {"matchExpressions": [
                     {"key": "app", "operator": "In", "values": ["train"]}]},
                 "containers": {"include": ["*"], "exclude": ["istio-*"]},
                 "labels": {"podLabels": ["app", "tier"]}}
    policies.apply("chosen", nodeSelector={"matchLabels": {"no-such": "node"}}, **selection)
    for workload in everyone:
        agent.wait_attached(workload.wait_ready(), len(image.libraries))
        wait_state(agent, workload, "untraced")
    policies.apply("chosen", nodeSelector={}, **selection)
    wait_state(agent, chosen, "traced")
    tallies = cluster.run(agent, *everyone)
    check_exact_pods(agent, (chosen, tallies[0]))
    labels = {"label_app": "train", "label_tier": "gold"}
    assert not differences([tallies[0]], OfPod(agent.metrics(), {**chosen.labels(), **labels}),
                           chosen.container)
    assert calls(agent, other_label) == 0 and calls(agent, excluded) == 0
    assert "excluded" in state_of(agent, excluded)[1] or "no policy" in state_of(agent, excluded)[1]


def test_probes_of_several_policies_join_and_one_without_nccl_counts_copies_only(cluster, policies):
    agent = cluster.agent(*ONLY_POLICIES)
    image = cluster.stub_image()
    policies.apply("copies", namespaceSelector=in_namespace(cluster),
                   probes={"nccl": {"enabled": False}, "cudaMemcpy": {"enabled": True}})
    pod = cluster.workload(image, "mixed", ["--calls", 1])
    agent.wait_attached(pod.wait_ready(), len(image.libraries))
    wait_state(agent, pod, "traced")
    first = run_inside(cluster, pod, "mixed", 1, image, "--calls", "2")

    def of_tally(tally, operation):
        return sum(f["calls"] for f in tally["functions"] if f["operation"] == operation)

    wait_until(lambda: calls(agent, pod, operation="cudaMemcpy") == of_tally(first, "cudaMemcpy"),
               "copies")
    assert calls(agent, pod, source="nccl") == 0
    policies.apply("reductions", namespaceSelector=in_namespace(cluster),
                   probes={"nccl": {"enabled": True, "functions": ["ncclAllReduce"]},
                           "cudaMemcpy": {"enabled": False}})
    wait_until(lambda: {"copies", "reductions"} <= {
        name for row in agent.state()["pods"] if row.get("pod") == pod.pod
        for name in row["policies"]}, "both policies")
    second = run_inside(cluster, pod, "mixed", 2, image, "--calls", "3")
    wait_until(lambda: calls(agent, pod, operation="ncclAllReduce")
               == of_tally(second, "ncclAllReduce"), "reductions")
    assert calls(agent, pod, operation="cudaMemcpy") == (
        of_tally(first, "cudaMemcpy") + of_tally(second, "cudaMemcpy"))
    assert calls(agent, pod, operation="ncclAllGather") == 0


def test_calls_above_the_policys_threshold_are_anomalies(cluster, policies):
    agent = cluster.agent(*ONLY_POLICIES)
    policies.apply("slow", namespaceSelector=in_namespace(cluster), slowCallThreshold="1us")
    pod = cluster.workload(cluster.stub_image(), "allreduce", ["--calls", 50],
                           env=[{"name": "STUB_NCCL_BUSY_NS", "value": "20000"}])
    agent.wait_attached(pod.wait_ready(), len(pod.libraries))
    wait_state(agent, pod, "traced")
    pod.start()
    tally = pod.tally()
    slow = sum(f["calls"] for f in tally["functions"] if f["operation"] == "ncclAllReduce")
    wait_until(lambda: agent.metrics().value("ingero_anomaly_count", **pod.labels()) >= slow,
               lambda: f"{slow} anomalies: "
                       f"{agent.metrics().value('ingero_anomaly_count', **pod.labels())}")
    policies.apply("slow", namespaceSelector=in_namespace(cluster), slowCallThreshold="10s")
    time.sleep(1)
    before = agent.metrics().value("ingero_anomaly_count", **pod.labels())
    run_inside(cluster, pod, "allreduce", 1, cluster.stub_image(), "--calls", "50")
    time.sleep(1)
    assert agent.metrics().value("ingero_anomaly_count", **pod.labels()) == before
