# SPDX-License-Identifier: Apache-2.0
"""What is served: names, types and labels of the contract, in a form that Prometheus accepts."""
import json
import shutil
import subprocess

import pytest

from harness.comparison import check_exact
from harness.host import stubs
from harness.waiting import wait_until

WORKLOAD = {"node", "namespace", "pod", "container"}
# shared contract of metrics, those of copies and NCCL: name -> type, own labels
CONTRACT = {
    "gpu_memcpy_bytes_total": ("counter", WORKLOAD | {"direction"}),
    "gpu_memcpy_duration_ms": ("histogram", WORKLOAD | {"direction"}),
    "gpu_nccl_collective_count": ("counter", WORKLOAD | {"op_type"}),
    "gpu_nccl_collective_bytes_total": ("counter", WORKLOAD | {"op_type"}),
    "gpu_nccl_collective_barrier_events": ("counter", WORKLOAD | {"op_type"}),
    "gpu_nccl_process_loaded": ("gauge", WORKLOAD | {"pid", "comm", "libnccl_path",
                                                     "libnccl_version"}),
    "gpu_nccl_processes_total": ("gauge", WORKLOAD),
    "gpu_cuda_operation_count_total": ("counter", WORKLOAD | {"source", "operation"}),
    "gpu_cuda_operation_duration_microseconds": ("gauge", WORKLOAD | {"source", "operation",
                                                                      "percentile"}),
    "gpu_cuda_memory_copies_bytes": ("histogram", WORKLOAD | {"cuda_memcpy_kind"}),
    "gpu_nccl_call_duration_seconds": ("histogram", WORKLOAD | {"op_type"}),
    "gpu_nccl_errors_total": ("counter", WORKLOAD | {"op_type", "result"}),
    "gpu_nccl_communicator_info": ("gauge", WORKLOAD | {"comm_id", "comm_name", "rank", "nranks",
                                                        "libnccl_version"}),
    "gpu_nccl_communicator_collectives_total": ("counter", WORKLOAD | {"comm_id", "rank"}),
    "gpu_nccl_communicator_last_enqueue_timestamp_seconds": ("gauge",
                                                             WORKLOAD | {"comm_id", "rank"}),
    "gpu_cuda_errors_total": ("counter", WORKLOAD | {"operation", "error"}),
    "ingero_anomaly_count": ("counter", WORKLOAD),
    "ingero_node_ready": ("gauge", set()),
    "ingero_config_last_reload_successful": ("gauge", set()),
    "ingero_events_lost_total": ("counter", {"reason"}),
    "ingero_series_dropped_total": ("counter", {"reason"}),
    "ingero_unattributed_calls_total": ("counter", {"reason"}),
    "ingero_probes_attached": ("gauge", {"library", "method"}),
}


@pytest.fixture
def loaded(host):
    """An agent beside a communicator in use and a container with failed calls."""
    agent = host.agent()
    failing = host.container("errors")
    calling = host.container("allreduce", "--seconds", 60, "--rate", 50)
    for container in (failing, calling):
        agent.wait_attached(container.wait_ready(), 3)
        container.start()
    failing.tally()
    wait_until(lambda: agent.metrics().samples.get("gpu_nccl_communicator_collectives_total"),
               "a communicator in use")
    return agent


def test_every_name_of_the_contract_is_served_with_its_type_and_labels(loaded):
    metrics = loaded.metrics()
    for name, (kind, labels) in CONTRACT.items():
        assert metrics.types.get(name) == kind, f"{name}: {metrics.types.get(name)}"
        series = name + ("_count" if kind == "histogram" else "")
        found = {frozenset(dict(sample)) for sample in metrics.samples[series]}
        assert found == {frozenset(labels)}, f"{name}: {found}"
    percentiles = set(metrics.by("gpu_cuda_operation_duration_microseconds", "percentile"))
    assert percentiles == {"p50", "p95", "p99"}
    assert set(metrics.by("gpu_cuda_operation_count_total", "source")) == {"cuda", "driver", "nccl"}
    for name in ("process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds",
                 "process_start_time_seconds", "ingero_build_info"):
        assert len(metrics.samples[name]) == 1, name


def test_histograms_have_the_buckets_of_the_contract_and_end_in_their_count(loaded):
    metrics = loaded.metrics()
    ends = {float(labels["le"]) for labels, _ in
            metrics.series("gpu_cuda_memory_copies_bytes_bucket")}
    assert sorted(ends) == [1024.0 * 4 ** i for i in range(13)] + [float("inf")]
    ends = sorted({float(labels["le"]) for labels, _ in
                   metrics.series("gpu_nccl_call_duration_seconds_bucket")})
    assert ends[0] <= 1e-6 and 60 <= ends[-2] <= 200
    for name in ("gpu_memcpy_duration_ms", "gpu_nccl_call_duration_seconds",
                 "gpu_cuda_memory_copies_bytes"):
        for labels, count in metrics.series(name + "_count"):
            buckets = sorted((float(found["le"]), value) for found, value in
                             metrics.series(name + "_bucket", **labels))
            values = [value for _, value in buckets]
            assert values == sorted(values) and values[-1] == count, (name, labels)


def test_promtool_accepts_the_metrics(loaded):
    promtool = shutil.which("promtool")
    if not promtool:
        pytest.skip("no promtool; hint: hack/setup (package prometheus)")
    result = subprocess.run([promtool, "check", "metrics"], input=loaded.metrics().text.encode(),
                            capture_output=True, check=False)
    complaints = (result.stdout + result.stderr).decode().splitlines()
    # Names that the contract gives and that promtool's taste does not: said, but status 0 or 3.
    given = ("gpu_nccl_processes_total", "gpu_nccl_collective_count", "gpu_memcpy_duration_ms",
             "gpu_cuda_operation_duration_microseconds", "gpu_nccl_collective_barrier_events",
             "ingero_anomaly_count")
    others = [line for line in complaints if not line.startswith(given)]
    assert not others and result.returncode in (0, 3), complaints


@pytest.mark.parametrize("listen", [":PORT", "127.0.0.1:PORT", "[::1]:PORT"])
def test_each_form_of_address_serves(host, listen):
    agent = host.agent(listen=listen)
    assert agent.get("/healthz")[0] == 200
    status, text = agent.get("/readyz")
    assert status == 200 and text.startswith("ready")
    assert "ingero_build_info" in agent.metrics().samples
    assert "files" in agent.state()
    assert agent.get("/nothing")[0] == 404
    status, _, err = agent.stop()
    assert status == 0, err


def test_a_host_without_work_is_ready_and_says_what_it_waits_for(host):
    agent = host.agent("--pid", 1)
    status, text = agent.get("/readyz")
    assert status == 200 and text.startswith("ready")
    metrics = agent.metrics()
    assert metrics.value("gpu_nccl_processes_total") >= 0
    assert {labels["library"] for labels, _ in metrics.series("ingero_probes_attached")} >= {
        "nccl", "cudart", "cuda"}
    assert not metrics.samples.get("gpu_nccl_collective_count")
    assert agent.state()["waiting_for"]


def test_debug_state_shows_processes_files_symbols_and_probes(host):
    agent = host.agent()
    container = host.container("mixed")
    tally = host.run(agent, container, finish=False)[0]
    _, state = check_exact(agent, (container, tally))
    json.dumps(state)
    process = next(found for found in state["processes"] if found["pid"] == container.pid)
    assert process["container"] == container.label and process["comm"].startswith("ingero_workl")
    paths = {path for path in process["libraries"]}
    assert all(any(path.endswith(library) for path in paths) for library in stubs().values()), paths
    for file in state["files"]:
        if file["path"] not in paths:
            continue
        assert file["inode"] > 0 and ":" in file["device"] and file["kind"] in (
            "nccl", "cudart", "cuda")
        assert file["probes"] and not file["not_attached"]
        assert all(set(probe) == {"symbol", "offset", "moved"} for probe in file["probes"])
    metrics = agent.metrics()
    loaded = metrics.series("gpu_nccl_process_loaded", pid=str(container.pid))
    assert [(labels["libnccl_version"], value) for labels, value in loaded] == [("2.28.9", 1)]
    assert metrics.value("gpu_nccl_processes_total", container=container.label) == 1
