// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace ingero::exporting {

/// The metrics that the agent exports, in the order of /metrics. A metric is declared here and in
/// the table of metrics_table.cc, nowhere else.
enum class MetricId : std::uint8_t {
  kMemcpyBytes,
  kMemcpyDuration,
  kNcclCollectives,
  kNcclCollectiveBytes,
  kNcclBarriers,
  kNcclProcessLoaded,
  kNcclProcesses,
  kCudaOperations,
  kCudaOperationDuration,
  kCudaCopySizes,
  kNcclCallDuration,
  kNcclErrors,
  kCommunicatorInfo,
  kCommunicatorCollectives,
  kCommunicatorLastEnqueue,
  kCudaErrors,
  kCudaSyncWait,
  kAnomalies,
  kTcpRetransmits,
  kRunQueueWait,
  kBuildInfo,
  kNodeReady,
  kConfigReloaded,
  kPolicyActive,
  kRecordings,
  kRecordedCalls,
  kRecordingLostCalls,
  kEventsLost,
  kSeriesDropped,
  kAttachFailures,
  kUnattributedCalls,
  kProbesAttached,
  kProcessCpu,
  kProcessResident,
  kProcessVirtual,
  kProcessOpenFds,
  kProcessMaxFds,
  kProcessStartTime,
  kProcessThreads,
};

enum class MetricType : std::uint8_t { kCounter, kGauge, kHistogram };

/// "counter", "gauge", "histogram"
std::string_view to_string(MetricType type);

inline constexpr std::size_t kMaxMetricLabels = 5;

/// Labels of every workload series, in front of the metric's own.
inline constexpr std::string_view kWorkloadLabels[] = {"node", "namespace", "pod", "container"};

struct MetricInfo {
  MetricId id;
  std::string_view name;
  MetricType type;
  std::string_view unit;                      ///< "bytes", "seconds"; empty: a plain number
  bool workload;                              ///< carries kWorkloadLabels
  std::string_view labels[kMaxMetricLabels];  ///< own labels; the first empty one ends the list
  std::string_view help;

  std::span<const std::string_view> own_labels() const;
};

/// All metrics; row i has the id i.
std::span<const MetricInfo> metrics_table();

const MetricInfo& metric_info(MetricId id);

/// docs/metrics.md, made from the table.
std::string metrics_reference_markdown();

/// Ends of the duration buckets: 1 us doubled 0 to 27 times. Each is the end of a kernel bucket
/// too, so cumulative counts are exact.
inline constexpr std::size_t kDurationEnds = 28;
/// The kernel bucket whose end is the duration end `index`, 2^index us.
constexpr std::size_t kernel_bucket_of_end(std::size_t index) { return 2 * index + 8; }

/// Ends of the size buckets with an end: 1 KiB to 16 GiB in steps of 4.
inline constexpr std::size_t kSizeEnds = 13;

}  // namespace ingero::exporting
