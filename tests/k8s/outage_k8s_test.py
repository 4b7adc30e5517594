# SPDX-License-Identifier: Apache-2.0
"""Parts of Kubernetes that go away while the agent counts."""
import contextlib

from harness.kubectl import hack_cluster
from harness.pod_comparison import check_exact_pods


@contextlib.contextmanager
def without(part):
    hack_cluster("stop-part", part)
    try:
        yield
    finally:
        hack_cluster("start-part", part)


def check_outage(cluster, part):
    """Calls that are made during the outage are counted under the pod's name, by the same agent."""
    agent = cluster.agent()
    workload = cluster.workload(cluster.stub_image(), "mixed", ["--calls", 4])
    agent.wait_attached(workload.wait_ready(), len(workload.libraries))
    restarts = agent.restarts()
    with without(part):
        workload.start()
        tally = workload.tally()
        check_exact_pods(agent, (workload, tally))
        assert agent.get("/readyz")[0] == 200
    check_exact_pods(agent, (workload, tally))
    assert agent.restarts() == restarts
    later = cluster.workload(cluster.stub_image(), "mixed", ["--calls", 3])
    tallies = cluster.run(agent, later)
    check_exact_pods(agent, (workload, tally), (later, tallies[0]))


def test_calls_are_counted_while_the_api_server_is_away(cluster):
    check_outage(cluster, "apiserver")


def test_calls_are_counted_while_the_kubelet_is_away(cluster):
    check_outage(cluster, "kubelet")


def test_calls_are_counted_while_containerd_is_away(cluster):
    check_outage(cluster, "containerd")
