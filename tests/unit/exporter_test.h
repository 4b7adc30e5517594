// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <utility>

#include "export/prometheus_collectable.h"

namespace ingero::exporting {

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

inline model::CallTotals totals(std::uint64_t calls, std::uint64_t bytes_each,
                                std::uint64_t ns_each) {
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

inline model::CallSeries call(std::uint32_t tgid, std::uint64_t in, std::uint16_t function,
                              std::uint8_t direction, model::CallTotals sums) {
  return {{tgid, tgid * 10ULL}, cgroup(in), function, direction, sums};
}

inline Workload container_of(model::CgroupId id) {
  return {"", "", "c" + std::to_string(to_number(id))};
}

inline model::Library nccl_library(std::uint64_t inode, std::string path, model::LibraryKind kind) {
  model::Library library;
  library.file = {1, 0, inode};
  library.path = std::move(path);
  library.kind = kind;
  library.version = "2.28.9";
  library.method = model::AttachMethod::kMulti;
  library.probes = {{"ncclAllReduce", 0x1000, false}, {"ncclCommInitRank", 0x2000, true}};
  return library;
}

/// Something of each kind, in containers 1 and 2.
inline model::Snapshot full_snapshot() {
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

/// What a scrape of `node-a` answers.
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

/// The labels of a series of that container.
inline std::string in(const std::string& container, const std::string& labels = "") {
  return R"({node="node-a",namespace="",pod="",container=")" + container + "\"" +
         (labels.empty() ? "" : "," + labels) + "}";
}

/// Of the metric's series that have `part` in their labels.
inline double sum_of(const Lines& lines, const std::string& name, const std::string& part = "") {
  double sum = 0;
  for (const auto& [series, value] : lines) {
    const bool match = series.starts_with(name + "{") && series.find(part) != std::string::npos;
    if (match) sum += value;
  }
  return sum;
}

}  // namespace ingero::exporting
