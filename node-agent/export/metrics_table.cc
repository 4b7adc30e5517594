// SPDX-License-Identifier: Apache-2.0
#include "export/metrics_table.h"

#include <fmt/format.h>

#include <iterator>

#include "bpf/wire.h"

namespace ingero::exporting {
namespace {

using enum MetricId;
using enum MetricType;

static_assert(kSizeEnds == SIZE_BUCKETS - 1);
static_assert(kernel_bucket_of_end(kDurationEnds - 1) < DURATION_BUCKETS - 1);

constexpr bool kWorkload = true;
constexpr bool kAgent = false;

constexpr MetricInfo kTable[] = {
    {kMemcpyBytes,
     "gpu_memcpy_bytes_total",
     kCounter,
     "bytes",
     kWorkload,
     {"direction"},
     "Bytes of successful copies through the CUDA runtime and driver."},
    {kMemcpyDuration,
     "gpu_memcpy_duration_ms",
     kHistogram,
     "milliseconds",
     kWorkload,
     {"direction"},
     "Host time of copy calls; of an asynchronous copy that is the time to enqueue it."},
    {kNcclCollectives,
     "gpu_nccl_collective_count",
     kCounter,
     "",
     kWorkload,
     {"op_type"},
     "Calls of NCCL collectives and point-to-point operations."},
    {kNcclCollectiveBytes,
     "gpu_nccl_collective_bytes_total",
     kCounter,
     "bytes",
     kWorkload,
     {"op_type"},
     "Message bytes of successful NCCL operations: count times size of the datatype, times the "
     "ranks "
     "where the count is that of one rank."},
    {kNcclBarriers,
     "gpu_nccl_collective_barrier_events",
     kCounter,
     "",
     kWorkload,
     {"op_type"},
     "Collectives that were the last on their stream when the host synchronized it."},
    {kNcclProcessLoaded,
     "gpu_nccl_process_loaded",
     kGauge,
     "",
     kWorkload,
     {"pid", "comm", "libnccl_path", "libnccl_version"},
     "1 for each process and NCCL (or RCCL) library that it maps; pid is the host's."},
    {kNcclProcesses,
     "gpu_nccl_processes_total",
     kGauge,
     "",
     kWorkload,
     {},
     "Processes that map an NCCL (or RCCL) library now."},
    {kCudaOperations,
     "gpu_cuda_operation_count_total",
     kCounter,
     "",
     kWorkload,
     {"source", "operation"},
     "Calls of traced functions."},
    {kCudaOperationDuration,
     "gpu_cuda_operation_duration_microseconds",
     kGauge,
     "microseconds",
     kWorkload,
     {"source", "operation", "percentile"},
     "Host time of calls that returned in about the last minute, or since the last scrape where "
     "scrapes are farther apart; no series without such a call."},
    {kCudaCopySizes,
     "gpu_cuda_memory_copies_bytes",
     kHistogram,
     "bytes",
     kWorkload,
     {"cuda_memcpy_kind"},
     "Sizes of successful copies."},
    {kNcclCallDuration,
     "gpu_nccl_call_duration_seconds",
     kHistogram,
     "seconds",
     kWorkload,
     {"op_type"},
     "Host time of NCCL calls, from entry to return."},
    {kNcclErrors,
     "gpu_nccl_errors_total",
     kCounter,
     "",
     kWorkload,
     {"op_type", "result"},
     "NCCL calls that returned an error; ncclInProgress is none."},
    {kCommunicatorInfo,
     "gpu_nccl_communicator_info",
     kGauge,
     "",
     kWorkload,
     {"comm_id", "comm_name", "rank", "nranks", "libnccl_version"},
     "1 for each communicator; a label is empty while its value is not known."},
    {kCommunicatorCollectives,
     "gpu_nccl_communicator_collectives_total",
     kCounter,
     "",
     kWorkload,
     {"comm_id", "rank"},
     "Sequence number: collectives enqueued on the communicator. Several that share their labels "
     "are "
     "summed, those that have ended too."},
    {kCommunicatorLastEnqueue,
     "gpu_nccl_communicator_last_enqueue_timestamp_seconds",
     kGauge,
     "seconds",
     kWorkload,
     {"comm_id", "rank"},
     "Unix time of the last collective enqueued; no series before the first."},
    {kCudaErrors,
     "gpu_cuda_errors_total",
     kCounter,
     "",
     kWorkload,
     {"operation", "error"},
     "CUDA runtime and driver calls that returned an error; cudaErrorNotReady is none."},
    {kCudaSyncWait,
     "gpu_cuda_sync_wait_seconds",
     kHistogram,
     "seconds",
     kWorkload,
     {"operation"},
     "Host time that calls waited for a stream to be done."},
    {kAnomalies,
     "ingero_anomaly_count",
     kCounter,
     "",
     kWorkload,
     {},
     "Calls that took longer than the threshold of their policy, else of the settings."},
    {kTcpRetransmits,
     "gpu_workload_tcp_retransmits_total",
     kCounter,
     "",
     kWorkload,
     {"family"},
     "Segments that TCP sent again, of sockets of containers with traced processes, as RetransSegs "
     "of "
     "/proc/net/snmp counts them; family is ipv4 or ipv6. No container: known by the pod's network "
     "namespace only."},
    {kRunQueueWait,
     "gpu_workload_runqueue_wait_seconds",
     kHistogram,
     "seconds",
     kWorkload,
     {},
     "Time that threads of traced processes were ready to run and waited for a processor."},
    {kBuildInfo,
     "ingero_build_info",
     kGauge,
     "",
     kAgent,
     {"version", "revision"},
     "1, labelled with the agent's build."},
    {kNodeReady,
     "ingero_node_ready",
     kGauge,
     "",
     kAgent,
     {},
     "1 while the agent counts and knows what it needs to label; /readyz gives the reason of a 0."},
    {kConfigReloaded,
     "ingero_config_last_reload_successful",
     kGauge,
     "",
     kAgent,
     {},
     "0 while the newest settings are refused and older ones hold; 1 otherwise."},
    {kPolicyActive,
     "ingero_policy_active",
     kGauge,
     "",
     kAgent,
     {"policy"},
     "1 for each GpuTracePolicy that is in force on this node, 0 for each that could not be read."},
    {kRecordings,
     "ingero_recordings",
     kGauge,
     "",
     kAgent,
     {"state"},
     "Pods of this node that policies want recorded, by state: recording, ended, refused."},
    {kRecordedCalls,
     "ingero_recorded_calls_total",
     kCounter,
     "",
     kAgent,
     {},
     "Calls written into recordings of pods."},
    {kRecordingLostCalls,
     "ingero_recording_lost_calls_total",
     kCounter,
     "",
     kAgent,
     {},
     "Calls of recorded pods that reached the agent and were not written; those that did not reach "
     "it are call_stream_full in ingero_events_lost_total."},
    {kEventsLost,
     "ingero_events_lost_total",
     kCounter,
     "",
     kAgent,
     {"reason"},
     "Events and details of calls that could not be recorded."},
    {kSeriesDropped,
     "ingero_series_dropped_total",
     kCounter,
     "",
     kAgent,
     {"reason"},
     "Series not exported on their own: budget = folded into container other, "
     "error_codes = folded into the error other. Counted when the folding begins."},
    {kAttachFailures,
     "ingero_attach_failures_total",
     kCounter,
     "",
     kAgent,
     {"reason"},
     "Libraries and functions that got no probe."},
    {kUnattributedCalls,
     "ingero_unattributed_calls_total",
     kCounter,
     "",
     kAgent,
     {"reason"},
     "Calls counted without the process or container that made them."},
    {kProbesAttached,
     "ingero_probes_attached",
     kGauge,
     "",
     kAgent,
     {"library", "method"},
     "Probes in place, by kind of library and attach method."},
    {kProcessCpu,
     "process_cpu_seconds_total",
     kCounter,
     "seconds",
     kAgent,
     {},
     "User and system CPU time of the agent."},
    {kProcessResident,
     "process_resident_memory_bytes",
     kGauge,
     "bytes",
     kAgent,
     {},
     "Resident memory of the agent."},
    {kProcessVirtual,
     "process_virtual_memory_bytes",
     kGauge,
     "bytes",
     kAgent,
     {},
     "Virtual memory of the agent."},
    {kProcessOpenFds,
     "process_open_fds",
     kGauge,
     "",
     kAgent,
     {},
     "Open file descriptors of the agent."},
    {kProcessMaxFds,
     "process_max_fds",
     kGauge,
     "",
     kAgent,
     {},
     "Limit of open file descriptors of the agent."},
    {kProcessStartTime,
     "process_start_time_seconds",
     kGauge,
     "seconds",
     kAgent,
     {},
     "Unix time at which the agent started."},
    {kProcessThreads, "process_threads", kGauge, "", kAgent, {}, "Threads of the agent."},
};

constexpr bool rows_stand_at_their_ids() {
  for (std::size_t i = 0; i < std::size(kTable); ++i) {
    if (static_cast<std::size_t>(kTable[i].id) != i) return false;
  }
  return static_cast<std::size_t>(kProcessThreads) + 1 == std::size(kTable);
}
static_assert(rows_stand_at_their_ids(), "the table follows the order of MetricId");

std::string code_list(std::span<const std::string_view> names) {
  std::string text;
  for (const std::string_view name : names) {
    text += fmt::format("{}`{}`", text.empty() ? "" : ", ", name);
  }
  return text;
}

constexpr std::string_view kIntroduction =
    R"(<!-- Made from node-agent/export/metrics_table.cc; a unit test compares the two. -->
# Metrics

`/metrics` serves these in the Prometheus text format.

Workload series carry {} in front of their own labels.
`container` is the container's name in its pod. Outside Kubernetes it is the container's id, or the
cgroup's path outside containers, and `namespace` and `pod` are empty. Pod labels that a policy and
the settings allow follow as `label_NAME`, annotations as `annotation_NAME`, with `_` for what
Prometheus does not allow in a label's name. Rows with equal labels are summed: variants of one function
(`cudaMemcpy_ptds`, `ncclAllReduceConfig`) share a label.

Duration buckets end at 1 us doubled 0 to 27 times (1 us to 134.217728 s), size buckets at 1 KiB
times powers of 4 up to 16 GiB. Their counts and sums are exact; a call whose return was not seen is
in the call counters and in no histogram.

The series budget is `max_series` lines of /metrics. Beyond it containers are folded into
`container="other"` (`namespace` and `pod` empty) with their counters summed: first those that want
more than an equal share, then the newest. Series of single processes and communicators get what is
left, one of each container in turn, and beyond it have none of their own; the collectives of such
communicators are summed under `comm_id="other"`. A policy's `limits.maxSeries` bounds all series of a
pod together. At most 32 distinct errors of a function in a container have series of their own, the
rest is `other`.

No counter falls while the agent runs. What `other` was given stays there: a container that gets series
of its own later goes on from where it was, so the sum over all is what was counted. The series of a pod
or container end one `series_retention` after it has gone, those of a communicator with it; what several
communicators without a known id have counted stays in their series while any of them lives.
)";

}  // namespace

std::string_view to_string(MetricType type) {
  switch (type) {
    case kCounter: return "counter";
    case kGauge: return "gauge";
    case kHistogram: return "histogram";
  }
  return "untyped";
}

std::span<const std::string_view> MetricInfo::own_labels() const {
  std::size_t count = 0;
  while (count < kMaxMetricLabels && !labels[count].empty()) ++count;
  return {labels, count};
}

std::span<const MetricInfo> metrics_table() { return kTable; }

const MetricInfo& metric_info(MetricId id) { return kTable[static_cast<std::size_t>(id)]; }

std::string metrics_reference_markdown() {
  std::string text = fmt::format(kIntroduction, code_list(kWorkloadLabels));
  for (const bool workload : {kWorkload, kAgent}) {
    text +=
        fmt::format("\n## {}\n\n| name | type | unit | labels | meaning |\n|---|---|---|---|---|\n",
                    workload ? "Workloads" : "The agent");
    for (const MetricInfo& row : kTable) {
      if (row.workload != workload) continue;
      text += fmt::format("| `{}` | {} | {} | {} | {} |\n", row.name, to_string(row.type), row.unit,
                          code_list(row.own_labels()), row.help);
    }
  }
  return text;
}

}  // namespace ingero::exporting
