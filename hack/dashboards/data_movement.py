# SPDX-License-Identifier: Apache-2.0
"""The board "Data Movement": copies and collectives, by direction, operation and pod."""
import parts
from parts import HOST_TIME, quantile, rate, since, sum_by

POD = ("namespace", "pod")
LEGEND = "{{namespace}}/{{pod}}"
TO_POD = parts.link("This pod", parts.PODS, namespace="__field.labels.namespace", pod="__field.labels.pod")
NO_COPY = "no copy was seen in this time"
NO_COLLECTIVE = "no NCCL call was seen in this time"


def copies(board):
    of = board.scope.of
    board.row("Copies: rates and sizes")
    moved = rate(of("gpu_memcpy_bytes_total"))
    meaning = ("Bytes per second of successful copies through the CUDA runtime and driver, counted when the call "
               "returns: what was asked for, not what a link carries at that moment.")
    board.add(parts.lines("Bytes copied by direction", meaning, "Bps",
                          [(sum_by(("direction",), moved), "{{direction}}")], no_value=NO_COPY), 12, 8)
    board.add(parts.lines("Bytes copied by pod", meaning, "Bps",
                          [(sum_by((*POD, "direction"), moved), f"{LEGEND} {{{{direction}}}}")],
                          no_value=NO_COPY, links=[TO_POD]), 12, 8)
    calls = rate(of("gpu_memcpy_duration_ms_count"))
    meaning = "Copy calls that returned, per second, failed ones included. A batch is one call."
    board.add(parts.lines("Copies by direction", meaning, "ops",
                          [(sum_by(("direction",), calls), "{{direction}}")], no_value=NO_COPY), 12, 8)
    board.add(parts.lines("Copies by pod", meaning, "ops",
                          [(sum_by((*POD, "direction"), calls), f"{LEGEND} {{{{direction}}}}")],
                          no_value=NO_COPY, links=[TO_POD]), 12, 8)
    size = of("gpu_cuda_memory_copies_bytes_bucket")
    board.add(parts.sizes("Copy sizes", "Successful copies per second by size; a cell is a bucket of the "
                          "histogram, from 1 KiB in steps of 4 times to 16 GiB. Many small copies cost more time "
                          "in calls than in moving.", sum_by(("le",), rate(size)), unit="bytes",
                          no_value=NO_COPY), 12, 8)
    board.add(parts.lines("Copy size by kind, p50 and p99", "Size that half, and 99 of 100, successful copies do "
                          "not exceed; interpolated within buckets that grow 4 times.", "bytes",
                          [(quantile(fraction, size, "cuda_memcpy_kind"), f"{{{{cuda_memcpy_kind}}}} {name}")
                           for fraction, name in ((0.5, "p50"), (0.99, "p99"))], no_value=NO_COPY), 12, 8)


def copy_latency(board):
    board.row("Copies: time of the calls")
    times = board.scope.of("gpu_memcpy_duration_ms_bucket")
    meaning = f"{HOST_TIME} Interpolated within buckets that double; no line while there is no copy."
    board.add(parts.lines("Copy calls by direction, p50 and p99", meaning, "ms",
                          [(quantile(fraction, times, "direction"), f"{{{{direction}}}} {name}")
                           for fraction, name in ((0.5, "p50"), (0.99, "p99"))], no_value=NO_COPY), 12, 8)
    board.add(parts.lines("Copy calls by pod, p99", meaning, "ms",
                          [(quantile(0.99, times, *POD, "direction"), f"{LEGEND} {{{{direction}}}}")],
                          no_value=NO_COPY, links=[TO_POD]), 12, 8)


def collectives(board):
    of = board.scope.of
    board.row("NCCL: rates")
    moved = rate(of("gpu_nccl_collective_bytes_total"))
    meaning = ("Message bytes per second of successful NCCL operations, as nccl-tests defines the size, counted "
               "when the call returns. It is what was enqueued, not the bandwidth of a bus or a link.")
    board.add(parts.lines("NCCL bytes by operation", meaning, "Bps",
                          [(sum_by(("op_type",), moved), "{{op_type}}")], no_value=NO_COLLECTIVE), 12, 8)
    board.add(parts.lines("NCCL bytes by pod", meaning, "Bps",
                          [(sum_by((*POD, "op_type"), moved), f"{LEGEND} {{{{op_type}}}}")],
                          no_value=NO_COLLECTIVE, links=[TO_POD]), 12, 8)
    calls = rate(of("gpu_nccl_collective_count"))
    meaning = "Calls of collectives and point-to-point operations per second, failed ones included."
    board.add(parts.lines("NCCL calls by operation", meaning, "ops",
                          [(sum_by(("op_type",), calls), "{{op_type}}")], no_value=NO_COLLECTIVE), 12, 8)
    board.add(parts.lines("NCCL calls by pod", meaning, "ops",
                          [(sum_by((*POD, "op_type"), calls), f"{LEGEND} {{{{op_type}}}}")],
                          no_value=NO_COLLECTIVE, links=[TO_POD]), 12, 8)
    barriers = rate(of("gpu_nccl_collective_barrier_events"))
    board.add(parts.lines("Barriers by pod", "Collectives per second after which the host waited for their "
                          "stream. It says how often the host waits, not how long.", "ops",
                          [(sum_by((*POD, "op_type"), barriers), f"{LEGEND} {{{{op_type}}}}")],
                          no_value=NO_COLLECTIVE, links=[TO_POD]), 12, 8)
    board.add(parts.lines("Share of calls with a barrier", "Collectives after which the host waited for their "
                          "stream, of all NCCL operations of the pod. Near 100 % the host cannot work ahead of the "
                          "GPU. No line while there is no call.", "percentunit",
                          [(f"{sum_by(POD, barriers)} / {sum_by(POD, calls)}", LEGEND)],
                          no_value=NO_COLLECTIVE, links=[TO_POD], maximum=1.0), 12, 8)
    board.row("NCCL: time of the calls")
    times = of("gpu_nccl_call_duration_seconds_bucket")
    meaning = (f"{HOST_TIME} A collective that waits for other ranks on the GPU is not long here. Interpolated "
               "within buckets that double; no line while there is no call.")
    board.add(parts.lines("NCCL calls by operation, p50 and p99", meaning, "s",
                          [(quantile(fraction, times, "op_type"), f"{{{{op_type}}}} {name}")
                           for fraction, name in ((0.5, "p50"), (0.99, "p99"))], no_value=NO_COLLECTIVE), 12, 8)
    board.add(parts.lines("NCCL calls by pod, p99", meaning, "s",
                          [(quantile(0.99, times, *POD, "op_type"), f"{LEGEND} {{{{op_type}}}}")],
                          no_value=NO_COLLECTIVE, links=[TO_POD]), 12, 8)


def errors(board):
    of = board.scope.of
    board.row("Errors")
    parts.error_lines(board, POD, LEGEND, links=[TO_POD])
    for title, metric, labels in (("NCCL errors in this time", "gpu_nccl_errors_total", ("op_type", "result")),
                                  ("CUDA errors in this time", "gpu_cuda_errors_total", ("operation", "error"))):
        keys = [*POD, *labels]
        to_pod = [parts.link("This pod", parts.PODS, namespace="__data.fields.namespace",
                             pod="__data.fields.pod")]
        board.add(parts.rows(title, "Calls that returned an error in the time range of the board, the first one "
                             "of a series included. More than 32 distinct errors of an operation are summed as "
                             "other.", keys,
                             [(f"{sum_by(keys, since(of(metric), '$__range'))} > 0", "errors", "short",
                               parts.RED_FROM_ONE)],
                             no_value="no call has returned an error", links={"pod": to_pod}), 12, 8)


def board():
    made = parts.Board(
        parts.DATA_MOVEMENT, "Ingero / Data Movement",
        "Which pod moves how much, by copies and by NCCL, how long the calls take on the host, and what fails. "
        "Made by hack/generate-dashboards.", ("node", "namespace", "pod"), ("Pods", parts.PODS))
    parts.wrong(made)
    copies(made)
    copy_latency(made)
    collectives(made)
    errors(made)
    parts.communicators(made, LEGEND)
    return made.build()
