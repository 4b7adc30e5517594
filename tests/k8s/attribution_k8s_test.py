# SPDX-License-Identifier: Apache-2.0
"""Whose calls they are: containers of every kind, and pods that are gone before anybody asks."""
import json
import os

from harness.audit import Audit
from harness.kubectl import environment, get, kubectl
from harness.pod_comparison import check_exact_pods
from harness.prometheus import Prometheus
from harness.workload import workload_container


def keep_attached(cluster, agent, image):
    """A pod whose libraries have their probes: later pods of the image are counted from the first
    instruction on."""
    workload = cluster.workload(image, "allreduce", ["--calls", 1], gpus=0)
    agent.wait_attached(workload.wait_ready(), len(image.libraries))
    return workload


def test_a_pod_that_lives_three_seconds_is_counted_under_its_name(cluster):
    agent = cluster.agent()
    image = cluster.stub_image()
    keep_attached(cluster, agent, image)
    workload = cluster.workload(image, "mixed", ["--calls", 3, "--hold", 2], start_file=False,
                                hold=False)
    tally = workload.tally()
    workload.wait_ended()
    check_exact_pods(agent, (workload, tally))


def test_a_pod_that_is_deleted_at_once_keeps_its_counts_and_its_name(cluster):
    agent = cluster.agent()
    image = cluster.stub_image()
    keep_attached(cluster, agent, image)
    workload = cluster.workload(image, "mixed", ["--calls", 3], start_file=False)
    tally = workload.tally()
    # Before the status names the container nobody but the kubelet could tell which one it was.
    workload.container_id()
    kubectl("delete", "pod", workload.pod, "-n", cluster.namespace, "--force", "--grace-period=0")
    check_exact_pods(agent, (workload, tally))


def test_ten_pods_at_once_have_each_their_own_exact_counts(cluster):
    agent = cluster.agent()
    image = cluster.stub_image()
    # A few series each: all of `mixed` ten times are more than max_series.
    workloads = [cluster.workload(image, "memcpy", ["--calls", 100 + n], gpus=0)
                 for n in range(10)]
    tallies = cluster.run(agent, *workloads)
    check_exact_pods(agent, *zip(workloads, tallies))


def test_init_sidecar_and_main_containers_are_told_apart(cluster):
    agent = cluster.agent()
    image = cluster.stub_image()
    keep_attached(cluster, agent, image)
    cluster.pod("several", [
        workload_container("main", image, "mixed", ["--calls", 4]),
        workload_container("second", image, "mixed", ["--calls", 5], gpus=0),
    ], init=[
        workload_container("first", image, "mixed", ["--calls", 2], gpus=0, start_file=False,
                           hold=False),
        workload_container("sidecar", image, "mixed", ["--calls", 3], gpus=0,
                           restartPolicy="Always"),
    ])
    first, *others = [cluster.workload_of("several", name, image)
                      for name in ("first", "sidecar", "main", "second")]
    tallies = [first.tally(), *cluster.run(agent, *others)]
    check_exact_pods(agent, *zip([first, *others], tallies))


def test_an_ephemeral_container_is_counted_under_its_name(cluster):
    agent = cluster.agent()
    image = cluster.stub_image()
    main = cluster.workload(image, "mixed", ["--calls", 2])
    main.wait_ready()
    debugger = cluster.ephemeral_workload(main.pod, "debugger", image, "mixed", ["--calls", 3])
    tallies = cluster.run(agent, main, debugger)
    check_exact_pods(agent, (main, tallies[0]), (debugger, tallies[1]))


def test_prometheus_has_the_pods_own_labels(cluster):
    agent = cluster.agent()
    workload = cluster.workload(cluster.stub_image(), "mixed", ["--calls", 3])
    tallies = cluster.run(agent, workload)
    check_exact_pods(agent, (workload, tallies[0]))
    expected = sum(row["calls"] + row["unreturned"] for row in tallies[0]["functions"])
    expression = ("sum by (namespace, pod, container, node) (gpu_cuda_operation_count_total"
                  f'{{namespace="{cluster.namespace}"}})')
    with Prometheus(cluster.directory, f"{agent.address}:{agent.port}") as prometheus:
        prometheus.wait_for(expression, lambda found: found == [(workload.labels(), expected)])


def test_the_agent_is_refused_nothing_by_the_api_server(cluster):
    audit = Audit()
    agent = cluster.agent()
    workload = cluster.workload(cluster.stub_image(), "mixed", ["--calls", 2])
    tallies = cluster.run(agent, workload)
    check_exact_pods(agent, (workload, tallies[0]))
    assert audit.refused() == []


def test_a_pod_on_the_host_network_has_its_name(cluster):
    agent = cluster.agent()
    image = cluster.stub_image()
    cluster.pod("on-host", [workload_container("workload", image, "mixed", ["--calls", 3])],
                hostNetwork=True)
    workload = cluster.workload_of("on-host", "workload", image)
    tallies = cluster.run(agent, workload)
    check_exact_pods(agent, (workload, tallies[0]))


def test_a_static_pod_has_the_name_of_its_mirror(cluster):
    agent = cluster.agent()
    image = cluster.stub_image()
    folder = os.path.join(os.path.dirname(environment()["KUBECONFIG"]), "static-pods")
    out = os.path.join(cluster.directory, "static-node1", "workload")
    os.makedirs(out)
    pod = {"apiVersion": "v1", "kind": "Pod",
           "metadata": {"name": "static", "namespace": cluster.namespace},
           "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
                    "containers": [workload_container("workload", image, "mixed", ["--calls", 3],
                                                      gpus=0)],
                    "volumes": [{"name": "out", "hostPath": {"path": os.path.dirname(out)}}]}}
    manifest = os.path.join(folder, f"{cluster.namespace}.json")
    unfinished = os.path.join(folder, f".{cluster.namespace}")  # the kubelet skips such names
    with open(unfinished, "w", encoding="utf-8") as file:
        json.dump(pod, file)
    os.replace(unfinished, manifest)
    try:
        workload = cluster.workload_of("static-node1", "workload", image)
        tallies = cluster.run(agent, workload)
        mirror = get("pod", "static-node1", cluster.namespace)
        assert "kubernetes.io/config.mirror" in mirror["metadata"]["annotations"]
        check_exact_pods(agent, (workload, tallies[0]))
    finally:
        os.remove(manifest)
