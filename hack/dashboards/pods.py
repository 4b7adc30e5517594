# SPDX-License-Identifier: Apache-2.0
"""The board "Pods": from the namespace to the pod to the container."""
import parts
from parts import AGENTS, HOST_TIME, quantile, rate, since, sum_by

CONTAINER = ("namespace", "pod", "container")
LEGEND = "{{namespace}}/{{pod}}/{{container}}"
TO_CONTAINER = parts.link("Only this container", parts.PODS, **{
    label: f"__field.labels.{label}" for label in CONTAINER})
# A scrape that is not that of the chart's monitors may set no node.
AGENT = ("node", "instance")
ONE_AGENT = "{{node}} {{instance}}"
NO_CALL = "no call was seen in this time"


def levels(board):
    """One table per level; a click on a name goes one level down, or to the other board."""
    of = board.scope.of
    board.row("From the namespace to the pod to the container")
    for title, keys in (("Namespaces", CONTAINER[:1]), ("Pods", CONTAINER[:2]),
                        ("Containers", ("node", *CONTAINER))):
        # Where a workload calls and nothing fails, the truth is 0.
        zero = f"0 * {sum_by(keys, of('gpu_cuda_operation_count_total'))}"

        def column(*expressions):
            return " or ".join([*expressions, zero])

        nccl, cuda = (sum_by(keys, since(of(name), "$__range"))
                      for name in ("gpu_nccl_errors_total", "gpu_cuda_errors_total"))
        failed = f"({nccl} or {zero}) + ({cuda} or {zero})"
        fields = {label: f"__data.fields.{label}" for label in keys if label != "node"}
        links = [parts.link("Only this one", parts.PODS, **fields),
                 parts.link("Its data movement", parts.DATA_MOVEMENT, **{
                     label: value for label, value in fields.items() if label != "container"})]
        board.add(parts.rows(
            title, f"Each {title.lower().removesuffix('s')} that the agents see. Processes: those that map an "
            "NCCL (or RCCL) library now. Calls: of all traced functions. Errors and slow calls: in the time range "
            "of the board, the rest now. Click a name to select it.", list(keys),
            [(column(sum_by(keys, of("gpu_nccl_processes_total"))), "processes", "short", None),
             (column(sum_by(keys, rate(of("gpu_cuda_operation_count_total")))), "calls", "ops", None),
             (column(sum_by(keys, rate(of("gpu_memcpy_bytes_total")))), "copied", "Bps", None),
             (column(sum_by(keys, rate(of("gpu_nccl_collective_bytes_total")))), "by NCCL", "Bps", None),
             (failed, "errors", "short", parts.RED_FROM_ONE),
             (column(sum_by(keys, since(of("ingero_anomaly_count"), "$__range"))), "slow calls", "short",
              parts.YELLOW_FROM_ONE)],
            no_value="no workload is seen", links={keys[-1]: links}, sort="errors"), 24,
            6 if title == "Namespaces" else 8)


def rates(board):
    of = board.scope.of
    board.row("Rates")
    board.add(parts.lines("Calls by library", "Calls of traced functions per second: source cuda is the runtime, "
                          "driver the driver. Functions that no policy asks for are not in it.", "ops",
                          [(sum_by((*CONTAINER, "source"), rate(of("gpu_cuda_operation_count_total"))),
                            f"{LEGEND} {{{{source}}}}")], no_value=NO_CALL, links=[TO_CONTAINER]), 12, 8)
    board.add(parts.lines("Slow calls by container", "Calls that took longer on the host than the threshold of their policy, "
                          "else of the settings, in the rate interval before each point. Always 0 where no "
                          "threshold is set.", "short",
                          [(sum_by(CONTAINER, since(of("ingero_anomaly_count"), "$__rate_interval")), LEGEND)],
                          no_value=NO_CALL, links=[TO_CONTAINER]), 12, 8)
    board.add(parts.lines("Bytes copied", "Bytes per second of successful copies, all directions: what was asked "
                          "for, not what a link carries at that moment.", "Bps",
                          [(sum_by(CONTAINER, rate(of("gpu_memcpy_bytes_total"))), LEGEND)],
                          no_value="no copy was seen in this time", links=[TO_CONTAINER]), 12, 8)
    board.add(parts.lines("Bytes by NCCL", "Message bytes per second of successful NCCL operations: what was "
                          "enqueued, not the bandwidth of a bus or a link.", "Bps",
                          [(sum_by(CONTAINER, rate(of("gpu_nccl_collective_bytes_total"))), LEGEND)],
                          no_value="no NCCL call was seen in this time", links=[TO_CONTAINER]), 12, 8)


def latency(board):
    of = board.scope.of
    board.row("Time of the calls")
    meaning = f"{HOST_TIME} No line while there is no call."
    for title, metric, unit in (("Copy calls", "gpu_memcpy_duration_ms_bucket", "ms"),
                                ("NCCL calls", "gpu_nccl_call_duration_seconds_bucket", "s")):
        board.add(parts.lines(f"{title}, p50 and p99", meaning, unit,
                              [(quantile(fraction, of(metric), *CONTAINER), f"{LEGEND} {name}")
                               for fraction, name in ((0.5, "p50"), (0.99, "p99"))],
                              no_value=NO_CALL, links=[TO_CONTAINER]), 12, 8)
    keys = [*CONTAINER, "source", "operation"]
    columns = [(sum_by(keys, rate(of("gpu_cuda_operation_count_total"))) + " > 0", "calls", "ops", None)]
    for percentile in ("p50", "p95", "p99"):
        chosen = f'percentile="{percentile}"'
        columns.append((f"max by ({', '.join(keys)}) "
                        f"({of('gpu_cuda_operation_duration_microseconds', chosen)})", percentile, "µs", None))
    board.add(parts.rows("Functions", f"{HOST_TIME} Percentiles of calls that returned in about the last minute, "
                         "as the agent works them out; a name for each function of the runtime, the driver and "
                         "NCCL. Not to be averaged over containers.", keys, columns,
                         no_value="no call returned in the last minute", sort="p99"), 24, 9)


def processes(board):
    of = board.scope.of
    board.row("Processes")
    board.add(parts.lines("Processes with NCCL", "Processes that map an NCCL (or RCCL) library now. Mapping it is "
                          "not using it.", "short",
                          [(sum_by(CONTAINER, of("gpu_nccl_processes_total")), LEGEND)],
                          no_value="no process maps an NCCL library", links=[TO_CONTAINER]), 8, 9)
    keys = ["node", *CONTAINER, "pid", "comm", "libnccl_path", "libnccl_version"]
    board.add(parts.rows("Process table", "Processes that map an NCCL (or RCCL) library now, once per library. "
                         "pid is that of the host; the path is that in the container.", keys,
                         [(f"max by ({', '.join(keys)}) ({of('gpu_nccl_process_loaded')})", "loaded", "short",
                           None)], no_value="no process maps an NCCL library"), 16, 9)


def agents(board):
    of = AGENTS.of
    board.row("What the agents do not see")
    none = "no agent is scraped"
    for title, metric, meaning in (
            ("Events lost by reason", "ingero_events_lost_total",
             "Events and details of calls that could not be recorded: counts are too low by so many."),
            ("Calls without owner", "ingero_unattributed_calls_total",
             "Calls that are counted, but without the process or the container that made them."),
            ("Libraries without probe", "ingero_attach_failures_total",
             "Attempts to attach to a library or function that failed: its calls are not counted."),
            ("Series folded", "ingero_series_dropped_total",
             "Series that have no line of their own: budget is folded into the container other, error_codes into "
             "the error other. Totals hold.")):
        board.add(parts.lines(title, f"{meaning} In the rate interval before each point.",
                              "short", [(sum_by((*AGENT, "reason"), since(of(metric), "$__rate_interval")),
                                         f"{ONE_AGENT} {{{{reason}}}}")], no_value=none), 6, 7)
    board.add(parts.number("Policies that cannot be read", "GpuTracePolicies that an agent could not read, now; "
                           "kubectl describe gtp says why. Outside Kubernetes there are none.",
                           f"count({of('ingero_policy_active')} == 0) or vector(0)"), 4, 7)
    board.add(parts.rows("Policies", "On how many nodes a GpuTracePolicy is in force. "
                         f"{parts.MAY_BE_EMPTY}there is no policy, or no Kubernetes.", ["policy"],
                         [(sum_by(("policy",), of("ingero_policy_active")), "nodes", "short", None)],
                         no_value="no policy: what defaultAction of the settings says"), 8, 7)
    board.add(parts.lines("Probes", "Probes in place, by kind of library and by the way they are attached. 0 "
                          "while no process maps such a library.", "short",
                          [(sum_by(("library", "method"), of("ingero_probes_attached")),
                            "{{library}} {{method}}")], no_value=none), 12, 7)
    board.add(parts.rows("Agents", "Agents that answer now, and their build. The column ready: 0 while the agent "
                         "does not count.", [*AGENT, "version", "revision"],
                         [(f"max by (node, instance, version, revision) ({of('ingero_build_info')} * on (job, instance) "
                           f"group_left () {of('ingero_node_ready')})", "ready", "short", None)], no_value=none), 8, 7)
    # The names process_* are everybody's: only those of targets that are agents.
    own = f"and on (job, instance) {of('ingero_build_info')}"
    board.add(parts.lines("CPU of the agents", "Cores that the agent's process uses. The probes' own time is in "
                          "the workloads that call them, not here.", "none",
                          [(sum_by(AGENT, f"{rate(of('process_cpu_seconds_total'))} {own}"), ONE_AGENT)],
                          no_value=none), 8, 7)
    board.add(parts.lines("Memory of the agents", "Resident memory of the agent's process, without the kernel's "
                          "maps.", "bytes",
                          [(sum_by(AGENT, f"{of('process_resident_memory_bytes')} {own}"), ONE_AGENT)],
                          no_value=none), 8, 7)


def board():
    made = parts.Board(
        parts.PODS, "Ingero / Pods",
        "What each namespace, pod and container calls, how long it takes on the host, what fails, and what the "
        "agents do not see. Made by hack/generate-dashboards.", ("node", *CONTAINER),
        ("Data Movement", parts.DATA_MOVEMENT))
    parts.wrong(made)
    levels(made)
    rates(made)
    latency(made)
    made.row("Errors")
    parts.error_lines(made, CONTAINER, LEGEND, links=[TO_CONTAINER])
    parts.communicators(made, LEGEND)
    processes(made)
    agents(made)
    return made.build()
