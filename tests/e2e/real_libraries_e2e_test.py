# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's own libraries, and the names and forms under which they are found. No GPU is needed:
calls fail, and are to be counted as failed."""
import os

from harness.comparison import Expected, check_exact
from harness.container import stub
from harness.host import stubs
from harness.real_libraries import find

CODE_IN_REAL_NCCL = {"ncclAllReduce", "ncclSend", "ncclGetUniqueId", "ncclCommInitRank"}


def real_container(host, nccl=None, cudart=None, **more):
    libraries = {kind: path for kind, path in (("nccl", nccl), ("cudart", cudart)) if path}
    return host.container("real", "--calls", 5, lower=None, libraries=libraries, **more)


def file_of(state, path):
    found = [file for file in state["files"] if file["path"] == path]
    assert len(found) == 1, (path, [file["path"] for file in state["files"]])
    return found[0]


def check_failures(tally, metrics, label):
    """Failed calls are what this is about: there were many, of the codes that we know."""
    expected = Expected([tally])
    failed = sum(expected.errors.values())
    assert failed > 20, expected.errors
    counted = metrics.value("gpu_nccl_errors_total", container=label) + metrics.value(
        "gpu_cuda_errors_total", container=label)
    assert counted == failed
    assert metrics.value("gpu_nccl_collective_bytes_total", container=label) == 0
    assert metrics.value("gpu_memcpy_bytes_total", container=label) == 0


def check_real(host, kind, name):
    path, folder_version = find(name)
    agent = host.agent()
    container = real_container(host, **{kind: path})
    tally = host.run(agent, container, finish=False)[0]
    metrics, state = check_exact(agent, (container, tally))
    check_failures(tally, metrics, container.label)
    file = file_of(state, path)
    assert file["kind"] == kind and not file["not_attached"] and not file["refused_symbols"]
    assert file["version"] == folder_version or file["version"].startswith(folder_version + ".")
    if kind == "nccl":
        assert len(folder_version.split(".")) == 3
        loaded = metrics.series("gpu_nccl_process_loaded", pid=str(container.pid))
        assert [(labels["libnccl_version"], labels["libnccl_path"]) for labels, _ in loaded] == [
            (folder_version, path)]
        assert CODE_IN_REAL_NCCL <= {probe["symbol"] for probe in file["probes"]}
    return file


def test_real_nccl_2_21_5_is_found_and_counted(host):
    assert check_real(host, "nccl", "nccl-2.21.5")["version"] == "2.21.5"


def test_real_nccl_2_28_9_is_found_and_counted(host):
    assert check_real(host, "nccl", "nccl-2.28.9")["version"] == "2.28.9"


def test_the_newest_real_nccl_is_found_and_counted(host):
    check_real(host, "nccl", "newest-nccl")


def test_real_cudart_12_4_is_found_and_counted(host):
    check_real(host, "cudart", "cudart-12.4")


def test_the_newest_real_cudart_is_found_and_counted(host):
    check_real(host, "cudart", "newest-cudart")


def test_several_versions_side_by_side_are_counted_each_for_itself(host):
    pairs = [("nccl-2.21.5", "cudart-12.4"), ("nccl-2.28.9", "newest-cudart"),
             ("newest-nccl", "cudart-12.4")]
    agent = host.agent()
    containers = [real_container(host, find(nccl)[0], find(cudart)[0]) for nccl, cudart in pairs]
    containers.append(host.container("mixed"))
    tallies = host.run(agent, *containers, finish=False)
    metrics, state = check_exact(agent, *zip(containers, tallies))
    for container, (nccl, _) in zip(containers, pairs):
        path, version = find(nccl)
        assert file_of(state, path)["version"] == version
        loaded = metrics.series("gpu_nccl_process_loaded", container=container.label)
        assert [labels["libnccl_version"] for labels, _ in loaded] == [version]


def test_two_versions_in_one_process_are_both_counted(host):
    old, new = find("cudart-12.4")[0], find("newest-cudart")[0]
    agent = host.agent()
    container = host.container(None, lower=None, libraries={"old": old, "new": new}, script=[
        [which, "cudaMemcpy", 0, 0, 64, 1] for which in ("old", "new", "old")])
    calls = host.run(agent, container)[0]
    assert all(call["result"] for call in calls)
    assert agent.metrics().by("gpu_cuda_operation_count_total", "operation",
                              container=container.label) == {"cudaMemcpy": 3}


def test_renamed_copies_are_found_by_their_symbols(host):
    cudart, version = find("cudart-12.4")
    root = host.root(f"{cudart}:/app/torch/lib/libcudart-d0da41ae.so.11.0",
                     f"{stub('libnccl.so.2')}:/venv/nvidia/nccl/lib/libnccl.so.2.28.9")
    agent = host.agent()
    container = host.container("real", lower=root, libraries={
        "cudart": "/app/torch/lib/libcudart-d0da41ae.so.11.0",
        "nccl": "/venv/nvidia/nccl/lib/libnccl.so.2.28.9"})
    tally = host.run(agent, container, finish=False)[0]
    _, state = check_exact(agent, (container, tally))
    found = {os.path.basename(file["path"]): (file["kind"], file["version"])
             for file in state["files"] if file["probes"]}
    assert found["libnccl.so.2.28.9"] == ("nccl", "2.28.9")
    kind, text = found["libcudart-d0da41ae.so.11.0"]
    assert kind == "cudart" and text.startswith(version)


def test_nccl_linked_into_libtorch_cuda_is_counted(host):
    agent = host.agent()
    libraries = {**stubs(), "nccl": "/stubs/push/libtorch_cuda.so"}
    container = host.container("mixed", "--calls", 2, libraries=libraries)
    tally = host.run(agent, container, finish=False)[0]
    metrics, _ = check_exact(agent, (container, tally))
    loaded = metrics.series("gpu_nccl_process_loaded", pid=str(container.pid))
    assert [(os.path.basename(labels["libnccl_path"]), labels["libnccl_version"])
            for labels, _ in loaded] == [("libtorch_cuda.so", "2.28.9")]


def test_rccl_is_counted_like_nccl(host):
    agent = host.agent()
    container = host.container("mixed", "--calls", 2,
                               libraries={"nccl": "/stubs/push/librccl.so.1"})
    tally = host.run(agent, container, finish=False)[0]
    assert any(row["function"] == "ncclAllToAll" for row in tally["functions"])
    metrics, state = check_exact(agent, (container, tally))
    assert metrics.value("gpu_nccl_collective_count", op_type="ncclAlltoAll",
                         container=container.label) == 2
    assert {file["kind"] for file in state["files"] if file["path"].endswith("librccl.so.1")
            } == {"rccl"}
