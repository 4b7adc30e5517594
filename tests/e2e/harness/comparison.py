# SPDX-License-Identifier: Apache-2.0
"""The workload's own count beside the agent's numbers. Every number must be equal."""
from collections import Counter

COLLECTIVES = {"ncclAllReduce", "ncclAllGather", "ncclReduceScatter", "ncclBcast", "ncclBroadcast",
               "ncclReduce", "ncclSend", "ncclRecv", "ncclAlltoAll", "ncclGather", "ncclScatter"}
KINDS = {"h2h": "MemcpyHostToHost", "h2d": "MemcpyHostToDevice", "d2h": "MemcpyDeviceToHost",
         "d2d": "MemcpyDeviceToDevice", "default": "MemcpyDefault",
         "unknown": "MemcpyUnknown"}
# From nccl.h and driver_types.h, not from the agent.
NCCL_RESULTS = {1: "ncclUnhandledCudaError", 2: "ncclSystemError", 3: "ncclInternalError",
                4: "ncclInvalidArgument", 5: "ncclInvalidUsage", 6: "ncclRemoteError",
                7: "ncclInProgress"}
CUDA_ERRORS = {1: "cudaErrorInvalidValue", 2: "cudaErrorMemoryAllocation",
               21: "cudaErrorInvalidMemcpyDirection", 35: "cudaErrorInsufficientDriver",
               100: "cudaErrorNoDevice", 700: "cudaErrorIllegalAddress", 999: "cudaErrorUnknown"}


def source_of(function):
    if function.startswith("nccl"):
        return "nccl"
    return "cuda" if function.startswith("cuda") else "driver"


def is_copy(row):
    return row["direction"] != ""


class Expected:
    """What the metrics of one container must say, by its tallies."""

    def __init__(self, tallies):
        self.rows = [row for tally in tallies for row in tally["functions"]]
        self.functions, self.operations, self.errors = {}, Counter(), Counter()
        self.collectives, self.collective_bytes = Counter(), Counter()
        self.copy_bytes = Counter()
        self.copies_returned, self.copies_succeeded = Counter(), Counter()
        for row in self.rows:
            self._add(row)
        self.calls = sum(self.operations.values())
        self.unreturned = sum(row["unreturned"] for row in self.rows)
        assert self.calls > 0, "the workload made no calls: nothing would be tested"

    def _add(self, row):
        calls = row["calls"] + row["unreturned"]
        if calls == 0:
            return
        function = self.functions.setdefault(row["function"], Counter())
        function.update(calls=calls, errors=row["errors"], bytes=row["bytes"],
                        unfinished=row["unreturned"])
        operation = row["operation"]
        self.operations[source_of(operation), operation] += calls
        names = NCCL_RESULTS if operation.startswith("nccl") else CUDA_ERRORS
        for code, count in row["errors_by_code"].items():
            self.errors[operation, names.get(int(code), code)] += count
        if operation in COLLECTIVES:
            self.collectives[operation] += calls
            self.collective_bytes[operation] += row["bytes"]
        if is_copy(row):
            self.copy_bytes[row["direction"]] += row["bytes"]
            self.copies_returned[row["direction"]] += row["calls"]
            self.copies_succeeded[row["direction"]] += (row["calls"] - row["errors"] -
                                                        row.get("unsized", 0))


def _differences(what, expected, counted):
    for key in sorted(set(expected) | set(counted), key=str):
        if expected.get(key, 0) != counted.get(key, 0):
            yield f"{what} {key}: expected {expected.get(key, 0)}, counted {counted.get(key, 0):g}"


def differences(tallies, metrics, label, state=None):
    """Lines that say what differs, of one container. Operations that were never called must not
    be there at all. `state` adds the comparison function by function."""
    expected = Expected(tallies)
    operations = {(labels["source"], labels["operation"]): value for labels, value in
                  metrics.series("gpu_cuda_operation_count_total", container=label)}
    errors = {(labels["op_type"], labels["result"]): value for labels, value in
              metrics.series("gpu_nccl_errors_total", container=label)}
    errors.update({(labels["operation"], labels["error"]): value for labels, value in
                   metrics.series("gpu_cuda_errors_total", container=label)})

    def by(name, key):
        return metrics.by(name, key, container=label)

    pairs = [
        ("calls", expected.operations, operations),
        ("errors", expected.errors, errors),
        ("collectives", expected.collectives, by("gpu_nccl_collective_count", "op_type")),
        ("collective bytes", expected.collective_bytes,
         by("gpu_nccl_collective_bytes_total", "op_type")),
        ("copy bytes", expected.copy_bytes, by("gpu_memcpy_bytes_total", "direction")),
        ("copies timed", expected.copies_returned, by("gpu_memcpy_duration_ms_count", "direction")),
        ("copies sized", {KINDS[d]: n for d, n in expected.copies_succeeded.items()},
         by("gpu_cuda_memory_copies_bytes_count", "cuda_memcpy_kind")),
        ("sizes summed", {KINDS[d]: n for d, n in expected.copy_bytes.items()},
         by("gpu_cuda_memory_copies_bytes_sum", "cuda_memcpy_kind")),
    ]
    found = [line for pair in pairs for line in _differences(*pair)]
    if state is not None:
        counted = {call["function"]: call for call in state["calls"] if call["container"] == label}
        for field in ("calls", "errors", "bytes", "unfinished"):
            found += _differences(f"{field} of", {f: row[field] for f, row in
                                                  expected.functions.items()},
                                  {f: row[field] for f, row in counted.items()})
    return found


def lost(metrics):
    """Reasons that are not 0, of both kinds of loss."""
    return {(name, labels["reason"]): value
            for name in ("ingero_events_lost_total", "ingero_unattributed_calls_total",
                         "ingero_series_dropped_total")
            for labels, value in metrics.series(name) if value != 0}


def check_exact(agent, *pairs, losses=None):
    """`pairs` of (container, tallies): all numbers equal, lost exactly `losses` ({reason: n})."""
    metrics, state = agent.metrics(), agent.state()
    problems = []
    for container, tallies in pairs:
        tallies = tallies if isinstance(tallies, list) else [tallies]
        problems += [f"{container.label[:12]}: {line}" for line in
                     differences(tallies, metrics, container.label, state)]
    assert not problems, f"{len(problems)} numbers differ:\n" + "\n".join(problems[:40])
    counted = {reason: value for (_, reason), value in lost(metrics).items()}
    assert counted == (losses or {}), f"lost: {counted}, expected {losses or {}}"
    return metrics, state
