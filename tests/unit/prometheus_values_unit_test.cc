// SPDX-License-Identifier: Apache-2.0
// What the numbers of the series are.
#include <time.h>

#include "exporter_test.h"

namespace ingero::exporting {
namespace {

TEST(PrometheusExport, VariantsAndProcessesOfAnOperationAreSummed) {
  const Lines lines = Exporter(full_snapshot()).lines();
  EXPECT_EQ(lines.at("gpu_nccl_collective_count" + in("c1", R"(op_type="ncclAllReduce")")), 16);
  EXPECT_EQ(lines.at("gpu_nccl_collective_count" + in("c1", R"(op_type="ncclBcast")")), 2);
  EXPECT_EQ(lines.at("gpu_nccl_collective_count" + in("c1", R"(op_type="ncclBroadcast")")), 3);
  EXPECT_EQ(lines.at("gpu_nccl_collective_bytes_total" + in("c1", R"(op_type="ncclAllReduce")")),
            10 * 4096 + 5 * 100 + 8);
  EXPECT_EQ(lines.at("gpu_nccl_collective_barrier_events" + in("c1", R"(op_type="ncclAllReduce")")),
            4);
  EXPECT_EQ(lines.at("gpu_cuda_operation_count_total" +
                     in("c1", R"(source="nccl",operation="ncclCommInitRank")")),
            1);
  EXPECT_EQ(sum_of(lines, "gpu_nccl_collective_count", "ncclCommInitRank"), 0);
  EXPECT_EQ(lines.at("gpu_cuda_operation_count_total" +
                     in("c2", R"(source="cuda",operation="cudaMemcpy")")),
            4);
}

TEST(PrometheusExport, CopiesOfRuntimeAndDriverAreSummedByDirection) {
  const Lines lines = Exporter(full_snapshot()).lines();
  const double bytes = 3 * 1024 + 1025 + 2.0 * (1ULL << 35);
  EXPECT_EQ(lines.at("gpu_memcpy_bytes_total" + in("c2", R"(direction="h2d")")), bytes);
  const auto ms = [&](const std::string& le) {
    return lines.at("gpu_memcpy_duration_ms_bucket" +
                    in("c2", R"(direction="h2d",le=")" + le + "\""));
  };
  EXPECT_EQ(ms("0.001"), 3);  // 1000 ns end in it, 1001 ns do not
  EXPECT_EQ(ms("0.002"), 4);
  EXPECT_EQ(ms("134217.728"), 4);
  EXPECT_EQ(ms("+Inf"), 6);
  EXPECT_EQ(lines.at("gpu_memcpy_duration_ms_count" + in("c2", R"(direction="h2d")")), 6);
  EXPECT_DOUBLE_EQ(lines.at("gpu_memcpy_duration_ms_sum" + in("c2", R"(direction="h2d")")),
                   400'000.004001);
}

TEST(PrometheusExport, CopySizesAreTheKernelsBuckets) {
  const Lines lines = Exporter(full_snapshot()).lines();
  const auto size = [&](const std::string& le) {
    return lines.at("gpu_cuda_memory_copies_bytes_bucket" +
                    in("c2", R"(cuda_memcpy_kind="MemcpyHostToDevice",le=")" + le + "\""));
  };
  EXPECT_EQ(size("1024"), 3);
  EXPECT_EQ(size("4096"), 4);
  EXPECT_EQ(size("17179869184"), 4);
  EXPECT_EQ(size("+Inf"), 6);
}

TEST(PrometheusExport, CallDurationsAreInSeconds) {
  const Lines lines = Exporter(full_snapshot()).lines();
  const auto at = [&](const std::string& le) {
    return lines.at("gpu_nccl_call_duration_seconds_bucket" +
                    in("c1", R"(op_type="ncclAllReduce",le=")" + le + "\""));
  };
  EXPECT_EQ(at("1e-06"), 0);
  EXPECT_EQ(at("2e-06"), 0);
  EXPECT_EQ(at("4e-06"), 16);
  EXPECT_EQ(at("134.217728"), 16);
  EXPECT_DOUBLE_EQ(
      lines.at("gpu_nccl_call_duration_seconds_sum" + in("c1", R"(op_type="ncclAllReduce")")),
      48e-6);
}

TEST(PrometheusExport, ErrorsAreNamedAndWhatIsNoFailureIsLeftOut) {
  const Lines lines = Exporter(full_snapshot()).lines();
  EXPECT_EQ(lines.at("gpu_nccl_errors_total" +
                     in("c1", R"(op_type="ncclAllReduce",result="ncclInvalidArgument")")),
            3);
  EXPECT_EQ(lines.at("gpu_cuda_errors_total" +
                     in("c2", R"(operation="cudaMemcpy",error="cudaErrorMemoryAllocation")")),
            5);
  EXPECT_EQ(sum_of(lines, "gpu_cuda_errors_total"), 5);
}

TEST(PrometheusExport, ErrorsWhoseCodesFoundNoRoomAreOther) {
  Exporter exporter(full_snapshot());
  exporter.snapshot->errors = {{cgroup(2), kMemcpy, model::kOtherErrorCode, 20},
                               {cgroup(2), kMemcpy, 2, 7}};
  exporter.snapshot->folded_error_codes = 9;
  const Lines lines = exporter.lines();
  EXPECT_EQ(sum_of(lines, "gpu_cuda_errors_total", "cudaErrorMemoryAllocation"), 7);
  EXPECT_EQ(sum_of(lines, "gpu_cuda_errors_total", R"(error="other")"), 20);
  EXPECT_EQ(lines.at(R"(ingero_series_dropped_total{reason="error_codes"})"), 9);
}

TEST(PrometheusExport, LoadedLibrariesAreThoseWithNccl) {
  const Lines lines = Exporter(full_snapshot()).lines();
  EXPECT_EQ(lines.at("gpu_nccl_process_loaded" +
                     in("c1", R"(pid="7",comm="python3",libnccl_path="/usr/lib/libnccl.so.2",)"
                              R"(libnccl_version="2.28.9")")),
            1);
  EXPECT_EQ(sum_of(lines, "gpu_nccl_process_loaded", "libtorch_cuda.so"), 1);
  EXPECT_EQ(sum_of(lines, "gpu_nccl_process_loaded"), 2);
  EXPECT_EQ(lines.at("gpu_nccl_processes_total" + in("c1")), 2);
}

TEST(PrometheusExport, CommunicatorsKeepUnknownValuesEmpty) {
  const Lines lines = Exporter(full_snapshot()).lines();
  const std::string known = R"(comm_id="0000000000000abc",)";
  EXPECT_EQ(lines.at("gpu_nccl_communicator_info" +
                     in("c1", known + R"(comm_name="world",rank="3",nranks="8",)"
                                      R"(libnccl_version="2.28.9")")),
            1);
  EXPECT_EQ(lines.at("gpu_nccl_communicator_collectives_total" + in("c1", known + R"(rank="3")")),
            16);
  EXPECT_EQ(lines.at("gpu_nccl_communicator_last_enqueue_timestamp_seconds" +
                     in("c1", known + R"(rank="3")")),
            1'700'000'000.5);
  EXPECT_EQ(lines.at("gpu_nccl_communicator_collectives_total" + in("c1", R"(comm_id="",rank="")")),
            2);
}

TEST(PrometheusExport, PercentilesCoverTheLastMinuteOnly) {
  Exporter exporter(full_snapshot());
  const std::string median = "gpu_cuda_operation_duration_microseconds" +
                             in("c2", R"(source="cuda",operation="cudaMemcpy",percentile="p50")");
  EXPECT_NEAR(exporter.lines().at(median), 1.0, 0.3);
  for (int second = 0; second < 90; second += 10) {
    exporter.clock.now_ns += 10'000'000'000;
    exporter.lines();
  }
  EXPECT_FALSE(exporter.lines().contains(median));
  exporter.snapshot->calls.push_back(call(99, 2, kMemcpy, COPY_D2H, totals(5, 10, 1'000'000)));
  EXPECT_NEAR(exporter.lines().at(median), 1000, 250);
  exporter.clock.now_ns += 30'000'000'000;
  EXPECT_NEAR(exporter.lines().at(median), 1000, 250);
  exporter.clock.now_ns += 60'000'000'000;
  exporter.lines();
  exporter.clock.now_ns += 60'000'000'000;
  EXPECT_FALSE(exporter.lines().contains(median));
}

TEST(PrometheusExport, RetransmissionsAndWaitsForAProcessorAreThoseOfTheContainerOrThePod) {
  const auto lines = Exporter(full_snapshot()).lines();
  EXPECT_EQ(lines.at("gpu_workload_tcp_retransmits_total" + in("c1", R"(family="ipv4")")), 7);
  EXPECT_EQ(lines.at("gpu_workload_tcp_retransmits_total" + in("c1", R"(family="ipv6")")), 2);
  EXPECT_EQ(lines.at("gpu_workload_tcp_retransmits_total" + in("", R"(family="ipv4")")), 3)
      << "known by the pod's network namespace only";
  EXPECT_EQ(sum_of(lines, "gpu_workload_runqueue_wait_seconds_count"), 4);
  EXPECT_EQ(sum_of(lines, "gpu_workload_runqueue_wait_seconds_sum"), 6);
}

TEST(PrometheusExport, WaitsForAStreamHaveAHistogram) {
  const auto lines = Exporter(full_snapshot()).lines();
  EXPECT_EQ(lines.at("gpu_cuda_sync_wait_seconds_count" +
                     in("c2", R"(operation="cudaStreamSynchronize")")),
            6);
}

TEST(PrometheusExport, BucketsThatAreLeftOutLeaveTheOthersCumulative) {
  model::DurationCounts counts{};
  counts[kernel_bucket_of_end(0)] = 3;
  counts[kernel_bucket_of_end(4)] = 2;
  const auto all = duration_histogram(counts, 0, 1e9);
  const auto few = duration_histogram(counts, 0, 1e9, 1U << 4 | 1U << 27);
  ASSERT_EQ(few.bucket.size(), 2u);
  EXPECT_EQ(few.bucket[0].upper_bound, all.bucket[4].upper_bound);
  EXPECT_EQ(few.bucket[0].cumulative_count, 5u);
  EXPECT_EQ(few.sample_count, 5u);
}

TEST(PrometheusExport, RecordingsOfPodsAreCountedByStateAndInAll) {
  const Lines lines = Exporter{model::Snapshot{}}.lines();
  EXPECT_EQ(lines.at(R"(ingero_recordings{state="recording"})"), 3);
  EXPECT_EQ(lines.at(R"(ingero_recordings{state="ended"})"), 2);
  EXPECT_EQ(lines.at(R"(ingero_recordings{state="refused"})"), 1);
  EXPECT_EQ(lines.at("ingero_recorded_calls_total"), 4000);
  EXPECT_EQ(lines.at("ingero_recording_lost_calls_total"), 50);
  FamilySet families("node-a");
  add_status(AgentStatus{}, families);  // outside of a cluster nothing is recorded on demand
  for (const auto& family : families.take())
    EXPECT_EQ(family.name.find("record"), family.name.npos);
}

TEST(PrometheusExport, AnEmptyNodeHasTheAgentsMetrics) {
  Exporter exporter{model::Snapshot{}};
  const Lines lines = exporter.lines();
  EXPECT_EQ(lines.at("gpu_nccl_processes_total" + in("")), 0);
  EXPECT_EQ(lines.at(R"(ingero_probes_attached{library="nccl",method="none"})"), 0);
  EXPECT_EQ(lines.at(R"(ingero_build_info{version="0.1.0",revision="abc"})"), 1);
  EXPECT_GT(lines.at("process_resident_memory_bytes"), 1e6);
  EXPECT_GE(lines.at("process_threads"), 1);
  EXPECT_GT(lines.at("process_open_fds"), 2);
  EXPECT_NEAR(lines.at("process_start_time_seconds"), static_cast<double>(time(nullptr)), 600);
  exporter.snapshot = nullptr;
  EXPECT_EQ(exporter.lines().count("gpu_nccl_processes_total" + in("")), 0);
}

}  // namespace
}  // namespace ingero::exporting
