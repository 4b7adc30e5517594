// SPDX-License-Identifier: Apache-2.0
// Who gets series, and that nothing that was counted is ever taken back.
#include <algorithm>
#include <functional>

#include "exporter_test.h"

namespace ingero::exporting {
namespace {

const std::string kCopied = "gpu_memcpy_bytes_total";
const std::string kCalls = "gpu_cuda_operation_count_total";
const std::string kSequence = "gpu_nccl_communicator_collectives_total";

bool only_grows(const std::string& series) {
  const std::string name = series.substr(0, series.find('{'));
  return name.ends_with("_total")
             ? name != "gpu_nccl_processes_total"
             : name.ends_with("_count") || name.ends_with("_sum") || name.ends_with("_bucket");
}

/// Scrapes, and remembers the highest value of each counter.
class Scraper {
 public:
  explicit Scraper(Exporter& exporter) : exporter_(exporter) {}

  Lines scrape() {
    const Lines lines = exporter_.lines();
    for (const auto& [series, value] : lines) {
      if (!only_grows(series)) continue;
      double& highest = seen_[series];
      EXPECT_GE(value, highest) << series;
      highest = std::max(highest, value);
    }
    return lines;
  }

 private:
  Exporter& exporter_;
  Lines seen_;
};

model::Snapshot containers(std::uint64_t first, std::uint64_t last, std::uint64_t calls = 1) {
  model::Snapshot snapshot;
  for (std::uint64_t i = first; i <= last; ++i)
    snapshot.calls.push_back(call(7, i, kMemcpy, COPY_H2D, totals(calls * i, 1024, 1'000)));
  return snapshot;
}

model::Communicator communicator(std::uint64_t in_cgroup, std::uint64_t id,
                                 std::uint64_t collectives) {
  model::Communicator comm;
  comm.cgroup = cgroup(in_cgroup);
  comm.process = {7, 70};
  comm.handle = id;
  comm.id_hash = id;
  comm.rank = 0;
  comm.nranks = 2;
  comm.collectives = collectives;
  comm.created_unix_ns = static_cast<std::int64_t>(id);
  return comm;
}

std::size_t series_of(const Lines& lines, const std::string& container) {
  std::size_t count = 0;
  for (const auto& [series, value] : lines)
    count += series.find("container=\"" + container + "\"") != std::string::npos ? 1 : 0;
  return count;
}

TEST(SeriesBudget, OtherDoesNotFallWhenAContainerGetsSeriesOfItsOwnAndTheSumStaysTrue) {
  Exporter exporter(containers(1, 30), 600);
  Scraper scraper(exporter);
  EXPECT_FALSE(scraper.scrape().contains(kCopied + in("c30", R"(direction="h2d")")));
  *exporter.snapshot = containers(23, 30, 2);  // the others are gone: there is room
  Lines lines = scraper.scrape();
  EXPECT_TRUE(lines.contains(kCopied + in("c30", R"(direction="h2d")")));
  const double gone = sum_of(Exporter(containers(1, 30)).lines(), kCopied) -
                      sum_of(Exporter(containers(23, 30)).lines(), kCopied);
  const double told_of_gone =
      sum_of(lines, kCopied) - sum_of(Exporter(containers(23, 30, 2)).lines(), kCopied);
  EXPECT_GE(told_of_gone, 0);
  EXPECT_LE(told_of_gone, gone);              // what they had of their own went with their series
  *exporter.snapshot = containers(1, 30, 3);  // more come: some are folded again
  scraper.scrape();
  *exporter.snapshot = containers(20, 30, 4);
  scraper.scrape();
}

TEST(SeriesBudget, ALiveContainerKeepsItsSeriesWhenManyShortOnesCome) {
  Exporter exporter(containers(500, 500, 1), 600);
  Scraper scraper(exporter);
  scraper.scrape();
  for (std::uint64_t first = 1; first <= 110; first += 10) {
    // Lower ids: the kernel may hand out what was given back.
    *exporter.snapshot = containers(first, first + 20);
    exporter.snapshot->calls.push_back(
        call(7, 500, kMemcpy, COPY_H2D, totals(500 + first, 1024, 1'000)));
    const Lines lines = scraper.scrape();
    EXPECT_EQ(sum_of(lines, kCalls, "container=\"c500\""), static_cast<double>(500 + first));
  }
}

TEST(SeriesBudget, AContainerThatWantsEverythingGivesWayToOthers) {
  model::Snapshot snapshot;
  for (std::uint16_t function = 1; function < 60; ++function)
    snapshot.calls.push_back(call(7, 1, function, 0, totals(1, 8, 1'000)));
  Exporter exporter(snapshot, 1000);
  Scraper scraper(exporter);
  EXPECT_GT(series_of(scraper.scrape(), "c1"), 500u);
  for (std::uint64_t i = 2; i <= 6; ++i)
    exporter.snapshot->calls.push_back(call(7, i, kMemcpy, COPY_H2D, totals(3, 1024, 1'000)));
  const Lines lines = scraper.scrape();
  for (std::uint64_t i = 2; i <= 6; ++i)
    EXPECT_EQ(sum_of(lines, kCalls, "container=\"c" + std::to_string(i) + "\""), 3) << i;
}

TEST(SeriesBudget, ATenantsCommunicatorsLeaveTheOthersTheirSeries) {
  model::Snapshot snapshot = containers(1, 3);
  for (std::uint64_t i = 1; i <= 6000; ++i) snapshot.communicators.push_back(communicator(1, i, 1));
  for (std::uint64_t i = 1; i <= 20; ++i)
    snapshot.communicators.push_back(communicator(2, 9000 + i, 5));
  Exporter exporter(snapshot, 1000);
  const Lines lines = Scraper(exporter).scrape();
  EXPECT_EQ(sum_of(lines, kSequence, "container=\"c2\""), 100);
  EXPECT_EQ(sum_of(lines, kSequence), 6100);
  EXPECT_LE(lines.size(), 1100u);
}

TEST(SeriesBudget, CollectivesToldAsOtherStayWhenTheirCommunicatorsEnd) {
  model::Snapshot snapshot = containers(1, 1);
  for (std::uint64_t i = 1; i <= 1000; ++i) snapshot.communicators.push_back(communicator(1, i, 4));
  Exporter exporter(snapshot, 300);
  Scraper scraper(exporter);
  const std::string other = R"(comm_id="other")";
  const double told = sum_of(scraper.scrape(), kSequence, other);
  EXPECT_GT(told, 3000);
  // The newest half ends; each made one more call at its end.
  exporter.snapshot->communicators.resize(500);
  for (std::uint64_t i = 501; i <= 1000; ++i)
    exporter.snapshot->ended_collectives.push_back({cgroup(1), i, 0, 5});
  EXPECT_EQ(sum_of(scraper.scrape(), kSequence, other), told + 500);
  exporter.snapshot->communicators.resize(10);  // these find room now
  for (std::uint64_t i = 11; i <= 500; ++i)
    exporter.snapshot->ended_collectives.push_back({cgroup(1), i, 0, 4});
  scraper.scrape();
}

TEST(SeriesBudget, WhatTwoCgroupsOfOneNameCountedUnderOneLabelIsToldOnceEach) {
  FakeClock clock;
  const auto snapshot = std::make_shared<model::Snapshot>();
  for (std::uint64_t i = 1; i <= 100; ++i) {
    snapshot->communicators.push_back(communicator(1, i, 4));
    snapshot->communicators.push_back(communicator(2, i, 3));
  }
  PrometheusCollectable collectable(
      {"node-a", 0}, [&] { return snapshot; },
      [](model::CgroupId) {
        return Workload{"", "", "again", {}};
      },
      clock);
  const auto told = [&] {
    double sum = 0;
    for (const auto& family : collectable.Collect())
      if (family.name == kSequence)
        for (const auto& metric : family.metric) sum += metric.counter.value;
    return sum;
  };
  EXPECT_EQ(told(), 700);
  EXPECT_EQ(told(), 700);
  snapshot->communicators.erase(snapshot->communicators.begin() + 100,
                                snapshot->communicators.end());
  for (std::uint64_t i = 1; i <= 100; ++i) {
    snapshot->ended_collectives.push_back({cgroup(1), i, 0, i <= 50 ? 1UL : 5UL});
    snapshot->ended_collectives.push_back({cgroup(2), i, 0, i <= 50 ? 0UL : 3UL});
  }
  // 50 live pairs with 7 and one more, 50 pairs that are gone with 7 and one more.
  EXPECT_EQ(told(), 800);
  // Never told while they lived: not told now.
  snapshot->ended_collectives.push_back({cgroup(2), 999, 0, 50});
  EXPECT_EQ(told(), 800);
}

TEST(SeriesBudget, CommunicatorsThatShareLabelsKeepWhatAnEndedOneHasCounted) {
  model::Snapshot snapshot;
  snapshot.communicators = {communicator(1, 0, 100), communicator(1, 0, 5)};
  snapshot.communicators[1].handle = 2;
  Exporter exporter(snapshot);
  Scraper scraper(exporter);
  EXPECT_EQ(sum_of(scraper.scrape(), kSequence), 105);
  exporter.snapshot->communicators.erase(exporter.snapshot->communicators.begin());
  exporter.snapshot->ended_collectives = {{cgroup(1), 0, 0, 100}};
  EXPECT_EQ(sum_of(scraper.scrape(), kSequence), 105);
  exporter.snapshot->communicators.clear();
  EXPECT_EQ(sum_of(scraper.scrape(), kSequence), 0) << "without a communicator there is no series";
}

TEST(SeriesBudget, APodsLimitHoldsForSeriesOfEveryKind) {
  FakeClock clock;
  const auto snapshot = std::make_shared<model::Snapshot>(containers(1, 2));
  for (std::uint64_t i = 1; i <= 500; ++i) {
    snapshot->communicators.push_back(communicator(1, i, 1));
    snapshot->processes.push_back({{std::uint32_t(i), i}, cgroup(1), "p", {{1, 0, 10}}});
  }
  snapshot->libraries = {nccl_library(10, "/libnccl.so", model::LibraryKind::kNccl)};
  PrometheusCollectable collectable(
      {"node-a"}, [&] { return snapshot; },
      [](model::CgroupId id) {
        Workload workload = container_of(id);
        workload.pod = "p" + workload.container;
        workload.max_series = workload.container == "c1" ? 100 : 0;
        return workload;
      },
      clock);
  const std::string text = metrics_text(collectable).value();
  std::size_t of_pod = 0;
  for (std::size_t at = 0; (at = text.find("pod=\"pc1\"", at)) != std::string::npos; ++at) ++of_pod;
  EXPECT_GT(of_pod, 60u);
  EXPECT_LE(of_pod, 100u);
  EXPECT_NE(text.find("comm_id=\"other\""), std::string::npos);
}

}  // namespace
}  // namespace ingero::exporting
