// SPDX-License-Identifier: Apache-2.0
// What a scrape costs from the snapshot to the text, by what there is of each kind. Not a test: nothing is
// asserted.
//   scrape_cost [ROUNDS]
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "bpf/api_functions.h"
#include "export/prometheus_collectable.h"
#include "model/functions.h"

namespace {

using namespace ingero;

struct Load {
  std::string what;
  std::uint64_t containers = 64;
  std::uint64_t processes = 1;      ///< of each container
  std::uint64_t communicators = 0;  ///< live, of all
  std::uint64_t ended = 0;          ///< communicators that are gone, of all
};

double now_ms() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) / 1e6;
}

/// About 150 lines of each container.
void add_calls(model::Snapshot& snapshot, std::uint64_t cgroup, std::uint32_t tgid) {
  std::uint16_t copies = 0, others = 0;
  for (const model::ApiFunction& function : model::api_functions()) {
    const bool copy = function.family == API_CUDA_COPY;
    if (copy ? copies++ >= 4 : function.source != API_SOURCE_NCCL || others++ >= 4) continue;
    model::CallSeries row;
    row.process = {tgid, tgid};
    row.cgroup = static_cast<model::CgroupId>(cgroup);
    row.function = function.id;
    row.direction = copy ? COPY_H2D : 0;
    row.totals.calls = 7;
    row.totals.durations[10] = 3;
    row.totals.durations[20] = 4;
    row.totals.sizes[3] = 7;
    snapshot.calls.push_back(row);
  }
}

std::shared_ptr<model::Snapshot> make(const Load& load) {
  auto snapshot = std::make_shared<model::Snapshot>();
  for (std::uint64_t c = 0; c < load.containers; ++c)
    for (std::uint64_t p = 0; p < load.processes; ++p)
      add_calls(*snapshot, c + 2, static_cast<std::uint32_t>(c * load.processes + p + 1));
  for (std::uint64_t i = 0; i < load.communicators; ++i) {
    model::Communicator comm;
    comm.cgroup = static_cast<model::CgroupId>(i % load.containers + 2);
    comm.id_hash = i + 1;
    comm.rank = static_cast<std::int32_t>(i % 8);
    comm.nranks = 8;
    comm.collectives = i;
    comm.created_unix_ns = static_cast<std::int64_t>(i + 1);
    comm.last_enqueue_unix_ns = 1;
    snapshot->communicators.push_back(comm);
  }
  for (std::uint64_t i = 0; i < load.ended; ++i)
    snapshot->ended_collectives.push_back(
        {static_cast<model::CgroupId>(i * load.containers / load.ended + 2), (1ULL << 32) + i,
         static_cast<std::int32_t>(i % 8), i});
  return snapshot;
}

exporting::Workload container_of(model::CgroupId id) {
  return {"training", fmt::format("pod-{}", to_number(id) / 2), fmt::format("c{}", to_number(id))};
}

void measure(const Load& load, int rounds) {
  const auto snapshot = make(load);
  const exporting::PrometheusCollectable collectable(
      {"node-a", 10000, "0", "0", exporting::kAllDurationEnds, "/proc", {}},
      [&] { return snapshot; }, container_of);
  std::vector<double> times;
  std::size_t lines = 0;
  for (int i = 0; i < rounds; ++i) {
    const double start = now_ms();
    const std::string text = exporting::metrics_text(collectable).value();
    times.push_back(now_ms() - start);
    lines = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
  }
  std::sort(times.begin(), times.end());
  fmt::print("| {} | {} | {:.1f} ms | {:.1f} ms |\n", load.what, lines, times.front(),
             times[times.size() / 2]);
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(std::atoi(argv[1]), 1) : 15;
  fmt::print("| from snapshot to text | lines | minimum | median |\n|---|---|---|---|\n");
  const Load loads[] = {
      {"64 containers", 64, 1, 0, 0},
      {"with 16 processes each", 64, 16, 0, 0},
      {"with 160 processes each", 64, 160, 0, 0},
      {"with 8,000 communicators", 64, 1, 8000, 0},
      {"with 80,000 communicators that are gone", 64, 1, 0, 80000},
      {"with 200,000 communicators that are gone", 64, 1, 0, 200000},
      {"600 containers, most of them folded", 600, 1, 0, 0},
      {"1,400 containers, most of them folded", 1400, 1, 0, 0},
  };
  for (const Load& load : loads) measure(load, rounds);
}
