// SPDX-License-Identifier: Apache-2.0
// Which series there are: their labels, their number and their text.
#include <gmock/gmock.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <set>
#include <thread>

#include "export/metrics_table.h"
#include "exporter_test.h"

namespace ingero::exporting {
namespace {

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

TEST(PrometheusExport, ScrapesFromManyThreads) {
  Exporter exporter(full_snapshot());
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 20; ++j) {
        EXPECT_TRUE(metrics_text(exporter.collectable).has_value());
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
