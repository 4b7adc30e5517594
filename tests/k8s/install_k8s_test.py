# SPDX-License-Identifier: Apache-2.0
"""The chart, installed as its users do, and pods whose own counts are compared with the metrics."""
from harness.kubernetes_agent import NAMESPACE
from harness.kubectl import helm
from harness.pod_comparison import check_exact_pods


def test_the_chart_installs_and_the_agent_gets_ready(cluster):
    agent = cluster.agent()
    assert agent.get("/readyz")[0] == 200
    assert agent.restarts() == 0
    assert '"status":"deployed"' in helm("list", "-n", NAMESPACE, "-o", "json")


def test_two_pods_of_one_image_have_each_their_own_exact_counts(cluster):
    agent = cluster.agent()
    image = cluster.stub_image()
    workloads = [cluster.workload(image, "mixed", ["--calls", rounds]) for rounds in (3, 5)]
    tallies = cluster.run(agent, *workloads)
    check_exact_pods(agent, *zip(workloads, tallies))


def test_a_pod_with_the_real_libnccl_has_exact_counts(cluster):
    agent = cluster.agent()
    workload = cluster.workload(cluster.real_image(), options=["--calls", 5])
    tallies = cluster.run(agent, workload)
    check_exact_pods(agent, (workload, tallies))


def test_stub_and_real_pods_at_the_same_time_have_exact_counts(cluster):
    agent = cluster.agent()
    image = cluster.stub_image()
    workloads = [cluster.workload(image, "mixed", ["--calls", 4]),
                 cluster.workload(image, "mixed", ["--calls", 7]),
                 cluster.workload(cluster.real_image(), options=["--calls", 5])]
    tallies = cluster.run(agent, *workloads)
    check_exact_pods(agent, *zip(workloads, tallies))
