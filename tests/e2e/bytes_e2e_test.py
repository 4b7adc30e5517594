# SPDX-License-Identifier: Apache-2.0
"""Bytes as nccl-tests defines the message size; copies by what their arguments say."""
import json

from harness.comparison import check_exact

COUNT, NRANKS = 1000, 16
# int8 uint8 int32 uint32 int64 uint64 fp16 fp32 fp64 bf16 fp8e4m3 fp8e5m2, from nccl.h
DATATYPE_SIZES = (1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1)
PER_RANK = {"ncclAllGather", "ncclReduceScatter", "ncclAlltoAll", "ncclGather", "ncclScatter"}
WITH_CONFIG = {"ncclAllReduce", "ncclBroadcast", "ncclReduce", "ncclAllGather",
               "ncclReduceScatter", "ncclAlltoAll", "ncclGather", "ncclScatter"}
OTHERS = {"ncclBcast", "ncclSend", "ncclRecv"}


def test_each_operation_with_each_datatype_has_the_bytes_of_nccl_tests(host):
    agent = host.agent()
    container = host.container("datatypes", "--nranks", NRANKS, "--rank", 3)
    tally = host.run(agent, container)[0]
    metrics, _ = check_exact(agent, (container, tally))
    one_pass = COUNT * sum(DATATYPE_SIZES)
    expected = {operation: one_pass * (NRANKS if operation in PER_RANK else 1) *
                (2 if operation in WITH_CONFIG else 1) for operation in WITH_CONFIG | OTHERS}
    assert metrics.by("gpu_nccl_collective_bytes_total", "op_type",
                      container=container.label) == expected


def test_bytes_of_each_single_call_follow_count_datatype_and_ranks(host):
    agent = host.agent("--format", "json")
    container = host.container("datatypes", "--nranks", NRANKS, "--rank", 3)
    host.run(agent, container)
    status, out, err = agent.stop()
    assert status == 0, err
    names = ("int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32",
             "float64", "bfloat16", "float8e4m3", "float8e5m2")
    lines = [line for line in map(json.loads, out.splitlines()) if line["datatype"] and
             line["container"] == container.label]
    assert len(lines) == 12 * (len(WITH_CONFIG) * 2 + len(OTHERS))
    assert {line["datatype"] for line in lines} == set(names)
    for line in lines:
        operation = line["function"].removesuffix("Config")
        size = DATATYPE_SIZES[names.index(line["datatype"])]
        ranks = NRANKS if operation in PER_RANK else 1
        assert (line["count"], line["bytes"]) == (COUNT, COUNT * size * ranks), line
        assert (line["rank"], line["nranks"]) == (3, NRANKS), line


def test_each_copy_function_in_each_direction_has_its_bytes(host):
    agent = host.agent()
    container = host.container("copies", "--calls", 3)
    tally = host.run(agent, container)[0]
    metrics, state = check_exact(agent, (container, tally))
    # The sizes of tests/workload/README.md, summed over the five directions, three rounds.
    sums = {"cudaMemcpy": sum(4096 + k for k in range(5)),
            "cudaMemcpyAsync": sum(4096 + k for k in range(5)),
            "cudaMemcpy2D": sum((640 + k) * 48 for k in range(5)),
            "cudaMemcpy2DAsync_ptsz": sum((640 + k) * 48 for k in range(5)),
            "cudaMemcpy2DToArray": sum((640 + k) * 48 for k in range(5)),
            "cudaMemcpy3D": sum(64 * 32 * (4 + k) for k in range(5)),
            "cudaMemcpyPeer": 2048, "cudaMemcpy3DPeer": 4096}
    counted = {call["function"]: call["bytes"] for call in state["calls"]
               if call["container"] == container.label}
    assert {name: counted.get(name) for name in sums} == {n: 3 * b for n, b in sums.items()}
    directions = set(metrics.by("gpu_memcpy_bytes_total", "direction", container=container.label))
    assert {"h2h", "h2d", "d2h", "d2d", "default"} <= directions
    assert len(counted) > 60, f"runtime and driver, with twins: {sorted(counted)}"


def test_failed_calls_add_no_bytes_and_are_counted_by_code(host):
    agent = host.agent()
    container = host.container("errors")
    tally = host.run(agent, container)[0]
    assert len({code for row in tally["functions"] for code in row["errors_by_code"]}) >= 8
    assert any(row["pending_by_code"] for row in tally["functions"])
    metrics, _ = check_exact(agent, (container, tally))
    results = set(metrics.by("gpu_nccl_errors_total", "result"))
    assert {"ncclRemoteError", "ncclInvalidUsage", "ncclSystemError"} <= results
    assert "ncclInProgress" not in results
    assert "cudaErrorNotReady" not in metrics.by("gpu_cuda_errors_total", "error")
