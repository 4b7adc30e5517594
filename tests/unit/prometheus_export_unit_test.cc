// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <thread>

#include "export/metrics_table.h"
#include "export/prometheus_collectable.h"

namespace ingero::exporting {
namespace {

using Lines = std::map<std::string, double>;  // series as written -> value

class FakeClock : public ClockSource {
 public:
  std::uint64_t monotonic_ns() const override { return now_ns; }
  std::uint64_t boottime_ns() const override { return now_ns; }
  std::uint64_t realtime_ns() const override { return now_ns; }
  std::uint64_t now_ns = 1'000'000'000;
};

constexpr std::uint16_t kAllReduce = 1;
constexpr std::uint16_t kBcast = 4;
constexpr std::uint16_t kBroadcast = 5;
constexpr std::uint16_t kAllReduceConfig = 13;
constexpr std::uint16_t kInitRank = 40;
constexpr std::uint16_t kMemcpy = 100;
constexpr std::uint16_t kMemcpyPtds = 101;
constexpr std::uint16_t kDriverHtoD = 304;
constexpr std::uint16_t kSynchronize = 200;

constexpr model::CgroupId cgroup(std::uint64_t number) {
  return static_cast<model::CgroupId>(number);
}

model::CallTotals totals(std::uint64_t calls, std::uint64_t bytes_each, std::uint64_t ns_each) {
  model::CallTotals totals;
  totals.calls = calls;
  totals.bytes = calls * bytes_each;
  totals.duration_ns = calls * ns_each;
  totals.durations[model::duration_bucket(ns_each)] = calls;
  std::size_t size = 0;
  while (static_cast<double>(bytes_each) > model::size_bucket_end(size)) ++size;
  totals.sizes[size] = calls;
  return totals;
}

model::CallSeries call(std::uint32_t tgid, std::uint64_t in, std::uint16_t function,
                       std::uint8_t direction, model::CallTotals sums) {
  return {{tgid, tgid * 10ULL}, cgroup(in), function, direction, sums};
}

Workload container_of(model::CgroupId id) { return {"", "", "c" + std::to_string(to_number(id))}; }

model::Library nccl_library(std::uint64_t inode, std::string path, model::LibraryKind kind) {
  model::Library library;
  library.file = {1, 0, inode};
  library.path = std::move(path);
  library.kind = kind;
  library.version = "2.28.9";
  library.method = model::AttachMethod::kMulti;
  library.probes = {{"ncclAllReduce", 0x1000, false}, {"ncclCommInitRank", 0x2000, true}};
  return library;
}

model::Snapshot full_snapshot() {
  model::Snapshot snapshot;
  snapshot.unix_ns = 1'700'000'000'000'000'000;
  auto reduce = totals(10, 4096, 3'000);
  reduce.barriers = 4;
  snapshot.calls = {call(7, 1, kAllReduce, 0, reduce),
                    call(8, 1, kAllReduceConfig, 0, totals(5, 100, 3'000)),
                    call(0, 1, kAllReduce, 0, totals(1, 8, 3'000)),
                    call(7, 1, kBcast, 0, totals(2, 8, 1'000)),
                    call(7, 1, kBroadcast, 0, totals(3, 8, 1'000)),
                    call(7, 1, kInitRank, 0, totals(1, 0, 2'000'000'000)),
                    call(7, 2, kMemcpy, COPY_H2D, totals(3, 1024, 1'000)),
                    call(7, 2, kMemcpyPtds, COPY_H2D, totals(1, 1025, 1'001)),
                    call(7, 2, kDriverHtoD, COPY_H2D, totals(2, 1ULL << 35, 200'000'000'000)),
                    call(7, 2, kSynchronize, 0, totals(6, 0, 3'000'000'000))};
  snapshot.errors = {{cgroup(1), kAllReduce, 4, 2},
                     {cgroup(1), kAllReduceConfig, 4, 1},
                     {cgroup(2), kMemcpy, 2, 5},
                     {cgroup(2), kMemcpy, 600, 5}};
  snapshot.libraries = {nccl_library(10, "/usr/lib/libnccl.so.2", model::LibraryKind::kNccl),
                        nccl_library(11, "/app/libtorch_cuda.so", model::LibraryKind::kOther)};
  snapshot.libraries.push_back({{1, 0, 12}, "/usr/lib/libcudart.so", model::LibraryKind::kCudart});
  snapshot.libraries[2].probes = {{"cudaMemcpy", 1, false}};
  snapshot.processes = {{{7, 70}, cgroup(1), "python3", {{1, 0, 10}, {1, 0, 12}}},
                        {{8, 80}, cgroup(1), "a\"b\\c\n\xff", {{1, 0, 11}}},
                        {{9, 90}, cgroup(2), "copier", {{1, 0, 12}}}};
  model::Communicator comm;
  comm.cgroup = cgroup(1);
  comm.id_hash = 0xabc;
  comm.rank = 3;
  comm.nranks = 8;
  comm.collectives = 16;
  comm.last_enqueue_unix_ns = 1'700'000'000'500'000'000;
  comm.name = "world";
  comm.library_version = "2.28.9";
  snapshot.communicators = {comm, {}};
  snapshot.communicators[1].cgroup = cgroup(1);
  snapshot.communicators[1].collectives = 2;
  snapshot.retransmits = {{cgroup(1), 5, false, false, 7},
                          {cgroup(1), 5, true, false, 2},
                          {cgroup(2), 6, false, true, 3}};
  model::WaitSeries waits{{7, 70}, cgroup(1), 2, 3'000'000'000, {}};
  waits.durations[kernel_bucket_of_end(20)] = 2;
  snapshot.waits = {waits, waits};
  snapshot.events_lost = {{"call_ring_full", 0}, {"forged_size", 3}};
  snapshot.unattributed_calls = {{"unknown_cgroup", 1}};
  snapshot.attach_failures = {{"permission", 2}};
  snapshot.method = model::AttachMethod::kMulti;
  return snapshot;
}

struct Exporter {
  explicit Exporter(model::Snapshot initial, std::size_t max_series = 10000)
      : snapshot(std::make_shared<model::Snapshot>(std::move(initial))),
        collectable(
            {"node-a", max_series, "0.1.0", "abc", kAllDurationEnds, "/proc",
             [] {
               return AgentStatus{
                   true, true, {{"training", true}}, RecordingCounts{3, 2, 1, 4000, 50}};
             }},
            [this] { return snapshot; }, container_of, clock) {}

  std::string text() const { return metrics_text(collectable).value(); }
  Lines lines() const {
    Lines lines;
    std::istringstream stream(text());
    for (std::string line; std::getline(stream, line);) {
      if (line.starts_with('#')) continue;
      const std::size_t space = line.rfind(' ');
      const bool added = lines.emplace(line.substr(0, space), std::stod(line.substr(space))).second;
      EXPECT_TRUE(added) << "twice: " << line;
    }
    return lines;
  }

  std::shared_ptr<model::Snapshot> snapshot;
  FakeClock clock;
  PrometheusCollectable collectable;
};

std::string in(const std::string& container, const std::string& labels = "") {
  return R"({node="node-a",namespace="",pod="",container=")" + container + "\"" +
         (labels.empty() ? "" : "," + labels) + "}";
}

double sum_of(const Lines& lines, const std::string& name, const std::string& part = "") {
  double sum = 0;
  for (const auto& [series, value] : lines) {
    const bool match = series.starts_with(name + "{") && series.find(part) != std::string::npos;
    if (match) sum += value;
  }
  return sum;
}

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

TEST(PrometheusExport, ErrorCodesAreAClosedSetAndDoNotMove) {
  Exporter exporter(full_snapshot());
  exporter.lines();
  exporter.snapshot->errors.clear();
  for (std::int32_t code = -50; code < 0; ++code) {
    exporter.snapshot->errors.push_back({cgroup(2), kMemcpy, code, 1});
  }
  exporter.snapshot->errors.push_back({cgroup(2), kMemcpy, 1, 1});
  exporter.snapshot->errors.push_back({cgroup(2), kMemcpy, 2, 7});
  const Lines lines = exporter.lines();
  EXPECT_EQ(sum_of(lines, "gpu_cuda_errors_total"), 58);
  EXPECT_EQ(sum_of(lines, "gpu_cuda_errors_total", "cudaErrorMemoryAllocation"), 7);
  EXPECT_EQ(sum_of(lines, "gpu_cuda_errors_total", "cudaErrorInvalidValue"), 1);
  EXPECT_EQ(sum_of(lines, "gpu_cuda_errors_total", R"(error="other")"), 20);
  EXPECT_EQ(lines.at(R"(ingero_series_dropped_total{reason="error_codes"})"), 20);
  EXPECT_EQ(exporter.lines().at(R"(ingero_series_dropped_total{reason="error_codes"})"), 20);
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
    exporter.collectable.observe(*exporter.snapshot);
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

TEST(PrometheusExport, NewestWorkloadsAreFoldedWhenTheBudgetIsSpentAndSumsStayExact) {
  model::Snapshot snapshot;
  for (std::uint64_t i = 1; i <= 40; ++i) {
    snapshot.calls.push_back(call(7, i, kMemcpy, COPY_H2D, totals(i, 1024, 1'000)));
    snapshot.processes.push_back({{std::uint32_t(i), i}, cgroup(i), "p", {{1, 0, 10}}});
    model::Communicator comm;
    comm.cgroup = cgroup(i);
    comm.id_hash = i;
    comm.rank = 0;
    comm.collectives = 1;
    snapshot.communicators.push_back(comm);
  }
  snapshot.libraries = {nccl_library(10, "/libnccl.so", model::LibraryKind::kNccl)};
  Exporter all(snapshot);
  Exporter few(snapshot, 600);
  const Lines complete = all.lines();
  const Lines budgeted = few.lines();
  for (const char* metric :
       {"gpu_memcpy_bytes_total", "gpu_cuda_operation_count_total", "gpu_memcpy_duration_ms_bucket",
        "gpu_memcpy_duration_ms_sum", "gpu_nccl_communicator_collectives_total",
        "gpu_nccl_processes_total"}) {
    EXPECT_NEAR(sum_of(budgeted, metric), sum_of(complete, metric), 1e-9) << metric;
  }
  std::size_t workload_series = 0;
  for (const auto& [series, value] : budgeted)
    workload_series += series.starts_with("gpu_") ? 1 : 0;
  EXPECT_LE(workload_series, 602);  // the sum of the communicators left out comes on top
  EXPECT_TRUE(budgeted.contains("gpu_memcpy_bytes_total" + in("c1", R"(direction="h2d")")));
  EXPECT_FALSE(budgeted.contains("gpu_memcpy_bytes_total" + in("c40", R"(direction="h2d")")));
  EXPECT_TRUE(budgeted.contains("gpu_memcpy_bytes_total" + in("other", R"(direction="h2d")")));
  const std::string dropped = R"(ingero_series_dropped_total{reason="budget"})";
  EXPECT_GT(budgeted.at(dropped), 0);
  EXPECT_EQ(few.lines().at(dropped), budgeted.at(dropped));
  EXPECT_EQ(complete.at(dropped), 0);
}

TEST(PrometheusExport, PodLabelsFollowTheLabelsOfTheWorkload) {
  FakeClock clock;
  const auto snapshot = std::make_shared<model::Snapshot>(full_snapshot());
  PrometheusCollectable collectable(
      {"n"}, [&] { return snapshot; },
      [](model::CgroupId) {
        return Workload{"research", "train-0", "main", {{"label_app", "tr\"ain"}}, 0};
      },
      clock);
  EXPECT_THAT(metrics_text(collectable).value(),
              testing::HasSubstr("ingero_anomaly_count{node=\"n\",namespace=\"research\","
                                 "pod=\"train-0\",container=\"main\",label_app=\"tr\\\"ain\"} "));
}

TEST(PrometheusExport, APodsOwnLimitFoldsItAndNobodyElse) {
  FakeClock clock;
  const auto snapshot = std::make_shared<model::Snapshot>(full_snapshot());
  PrometheusCollectable collectable(
      {"n"}, [&] { return snapshot; },
      [](model::CgroupId cgroup) {
        Workload workload = container_of(cgroup);
        workload.max_series = workload.container == "c1" ? 1 : 0;
        return workload;
      },
      clock);
  const std::string text = metrics_text(collectable).value();
  EXPECT_THAT(text,
              testing::Not(testing::HasSubstr(
                  "gpu_memcpy_bytes_total{node=\"n\",namespace=\"\",pod=\"\",container=\"c1\"")));
  EXPECT_THAT(text, testing::HasSubstr("container=\"other\""));
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

TEST(PrometheusExport, EverySeriesHasTheLabelsOfTheTable) {
  Exporter exporter(full_snapshot());
  std::set<std::string> seen;
  for (const auto& family : exporter.collectable.Collect()) {
    seen.insert(family.name);
    const auto info = std::find_if(metrics_table().begin(), metrics_table().end(),
                                   [&](const MetricInfo& row) { return row.name == family.name; });
    ASSERT_NE(info, metrics_table().end()) << family.name;
    std::vector<std::string_view> expected;
    if (info->workload) expected.assign(std::begin(kWorkloadLabels), std::end(kWorkloadLabels));
    expected.insert(expected.end(), info->own_labels().begin(), info->own_labels().end());
    for (const auto& metric : family.metric) {
      std::vector<std::string_view> labels;
      for (const auto& label : metric.label) labels.push_back(label.name);
      EXPECT_EQ(labels, expected) << family.name;
    }
  }
  for (const MetricInfo& info : metrics_table()) {
    EXPECT_TRUE(seen.contains(std::string(info.name))) << info.name << " is never exported";
  }
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

TEST(PrometheusExport, ScrapesAndObservationsFromManyThreads) {
  Exporter exporter(full_snapshot());
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 20; ++j) {
        EXPECT_TRUE(metrics_text(exporter.collectable).has_value());
        exporter.collectable.observe(*exporter.snapshot);
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

std::string run(const std::string& command, int& status) {
  std::string output;
  FILE* const pipe = popen(command.c_str(), "r");
  if (!pipe) return "";
  char buffer[4096];
  while (std::fgets(buffer, sizeof(buffer), pipe)) output += buffer;
  status = pclose(pipe);
  return output;
}

TEST(PrometheusExport, PromtoolReadsItAndComplainsAboutGivenNamesOnly) {
  int status = 0;
  run("promtool --version 2>&1", status);
  if (status != 0) GTEST_SKIP() << "promtool is not installed (package prometheus)";
  std::string path = "/tmp/ingero-metrics-XXXXXX";
  const int fd = mkstemp(path.data());
  ASSERT_GE(fd, 0);
  close(fd);
  std::ofstream(path) << Exporter(full_snapshot()).text();
  const std::string output = run("promtool check metrics < " + path + " 2>&1", status);
  unlink(path.c_str());
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_TRUE(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 3) << output;
  // Published dashboards query these; the lint would like other names.
  const std::set<std::string> given = {"gpu_memcpy_duration_ms",
                                       "gpu_nccl_collective_count",
                                       "gpu_nccl_collective_barrier_events",
                                       "gpu_nccl_processes_total",
                                       "gpu_cuda_operation_duration_microseconds",
                                       "ingero_anomaly_count"};
  std::istringstream stream(output);
  for (std::string line; std::getline(stream, line);) {
    EXPECT_TRUE(given.contains(line.substr(0, line.find(' ')))) << line;
  }
}

/// Prints the time of a scrape with about 10,000 series.
TEST(PrometheusExport, TenThousandSeriesAreWrittenInTime) {
  model::Snapshot snapshot = full_snapshot();
  const std::string id(64, 'a');
  for (std::uint64_t container = 1000; container < 1042; ++container) {
    for (std::uint32_t process = 1; process <= 8; ++process) {
      for (const std::uint16_t function : {kAllReduce, kBcast, kBroadcast, kInitRank}) {
        snapshot.calls.push_back(
            call(process, container, function, 0, totals(1000, 4096, 1000 * process)));
      }
      for (std::uint8_t direction = 1; direction < 3; ++direction) {
        snapshot.calls.push_back(call(process, container, 102, direction, totals(9, 4096, 5000)));
      }
    }
  }
  FakeClock clock;
  PrometheusCollectable collectable(
      {"node-a", 10000, "0.1.0", "abc"},
      [shared = std::make_shared<const model::Snapshot>(snapshot)] { return shared; },
      [&](model::CgroupId in_cgroup) {
        return Workload{"", "", id + std::to_string(to_number(in_cgroup))};
      },
      clock);
  std::size_t size = 0;
  double best_ms = 1e9;
  double best_collect_ms = 1e9;
  std::string text;
  for (int i = 0; i < 10; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    static_cast<void>(collectable.Collect());
    const auto middle = std::chrono::steady_clock::now();
    text = metrics_text(collectable).value();
    const auto end = std::chrono::steady_clock::now();
    size = text.size();
    using Ms = std::chrono::duration<double, std::milli>;
    best_collect_ms = std::min(best_collect_ms, Ms(middle - begin).count());
    best_ms = std::min(best_ms, Ms(end - middle).count());
  }
  const auto lines = std::count(text.begin(), text.end(), '\n');
  std::printf("%ld lines, %zu bytes: %.1f ms, of them %.1f ms before the serializer\n", lines, size,
              best_ms, best_collect_ms);
  EXPECT_GT(lines, 9000);
}

}  // namespace
}  // namespace ingero::exporting
