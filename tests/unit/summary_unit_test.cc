// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/summary.h"
#include "cli/tally_file.h"
#include "model/functions.h"

namespace ingero::cli {
namespace {

using model::CgroupId;
using model::Snapshot;
using testing::HasSubstr;

std::string label_of(CgroupId cgroup) {
  return cgroup == CgroupId{1} ? "3f2a9c81d0b7e4f5" : "/system.slice/bench.service";
}

model::CallSeries series(std::uint32_t tgid, CgroupId cgroup, std::string_view symbol,
                         std::uint64_t calls, std::uint64_t bytes, std::uint8_t direction = 0) {
  model::CallSeries out{{tgid, 1}, cgroup, 0, direction, {}};
  for (const auto& function : model::api_functions()) {
    if (function.symbol == symbol) out.function = function.id;
  }
  out.totals.calls = calls;
  out.totals.bytes = bytes;
  out.totals.duration_ns = calls * 10'000;
  out.totals.durations[model::duration_bucket(10'000)] = calls;
  return out;
}

Snapshot run_of_two_containers() {
  Snapshot snapshot;
  snapshot.calls = {series(812, CgroupId{1}, "ncclAllReduce", 100, 4 << 20),
                    series(813, CgroupId{1}, "ncclAllReduce", 50, 2 << 20),
                    series(0, CgroupId{1}, "ncclAllReduce", 1, 1 << 20),
                    series(99, CgroupId{2}, "cudaMemcpy_ptds", 7, 700, COPY_D2H)};
  snapshot.calls[0].totals.errors = 2;
  snapshot.events_lost = {{"call_ring_full", 0}, {"calls_map_full", 0}};
  return snapshot;
}

TEST(Summary, AddsUpTheProcessesOfAContainer) {
  EXPECT_EQ(render_summary(run_of_two_containers(), label_of, {}),
            "CONTAINER     OPERATION       CALLS  ERRORS     BYTES     MEAN      P50      P99\n"
            "…nch.service  cudaMemcpy d2h      7       0     700 B  10.0 us  10.0 us  12.0 us\n"
            "3f2a9c81d0b7  ncclAllReduce     151       2  7.00 MiB  10.0 us  10.0 us  12.0 us\n"
            "total         2 operations      158       2  7.00 MiB\n"
            "lost: 0\n");
}

TEST(Summary, LossIsListedByReason) {
  Snapshot snapshot = run_of_two_containers();
  snapshot.events_lost["call_ring_full"] = 12'000;
  const std::string text = render_summary(snapshot, label_of, {});
  EXPECT_THAT(text, HasSubstr("lost: 12,000\n  call_ring_full: 12,000\n"));
  EXPECT_THAT(text, testing::Not(HasSubstr("calls_map_full")));
}

TEST(Summary, RunWithoutCalls) {
  EXPECT_EQ(render_summary(Snapshot{}, nullptr, {}), "no calls\nlost: 0\n");
}

TEST(Summary, EntryOnlyCallsHaveNoDuration) {
  Snapshot snapshot;
  snapshot.calls = {series(1, CgroupId{1}, "ncclAllReduce", 5, 0)};
  snapshot.calls[0].totals.durations = {};
  snapshot.calls[0].totals.unfinished = 5;
  EXPECT_THAT(render_summary(snapshot, label_of, {}),
              HasSubstr("5       0      -     -    -    -\n"));
}

TEST(Compare, EqualTotalsAreEqual) {
  const std::vector<TallyLine> made{
      {"3f2a9c81d0b7e4f5", "ncclAllReduce", "", 100, 2, 5 << 20},
      {"3f2a9c81d0b7e4f5", "ncclAllReduce", "", 51, 0, 2 << 20},
      {"/system.slice/bench.service", "cudaMemcpy_ptds", "d2h", 7, 0, 700}};
  const auto comparison = compare_tallies(made, tally_of(run_of_two_containers(), label_of));
  EXPECT_TRUE(comparison.equal());
  EXPECT_EQ(comparison.lines.size(), 2U);
  EXPECT_THAT(render_comparison(comparison, {}), HasSubstr("equal: 2 lines"));
}

TEST(Compare, DifferencesAreSignedAndNamed) {
  const std::vector<TallyLine> made{{"", "ncclAllReduce", "", 1'000'100, 0, 4096}};
  const std::vector<TallyLine> counted{{"", "ncclAllReduce", "", 100, 3, 4096},
                                       {"", "ncclSend", "", 5, 0, 0}};
  const auto comparison = compare_tallies(made, counted);
  EXPECT_FALSE(comparison.equal());
  const std::string text = render_comparison(comparison, {});
  EXPECT_THAT(text, HasSubstr("calls -1,000,000, errors +3\n"));
  EXPECT_THAT(text, HasSubstr("calls +5\n"));
  EXPECT_THAT(text, HasSubstr("different: 2 of 2 lines"));
}

TEST(Compare, WhatOnlyTheWorkloadHasIsADifference) {
  EXPECT_FALSE(compare_tallies({{"", "ncclSend", "", 1, 0, 8}}, {}).equal());
  EXPECT_TRUE(compare_tallies({}, {}).equal());
}

TEST(Compare, OneByteIsADifference) {
  EXPECT_FALSE(
      compare_tallies({{"", "ncclSend", "", 1, 0, 8}}, {{"", "ncclSend", "", 1, 0, 9}}).equal());
}

TEST(TallyFile, ReadsWhatTheWorkloadWrites) {
  const auto lines = parse_tally(
      R"({"pid": 812, "functions": [
           {"function":"ncclAllToAll","direction":"","calls":10,"errors":1,"errors_by_code":{"5":1},
            "bytes":4096,"unreturned":2,"aliased":3},
           {"function":"cudaMemcpyAsync_ptsz","direction":"h2d","calls":4,
            "errors":0,"bytes":64}]})",
      "box");
  ASSERT_TRUE(lines) << lines.error().message();
  ASSERT_EQ(lines->size(), 2U);
  EXPECT_EQ((*lines)[0].operation, "ncclAlltoAll");
  EXPECT_EQ((*lines)[0].calls, 12U) << "the agent counts calls that never return, too";
  EXPECT_EQ((*lines)[1].operation, "cudaMemcpyAsync");
  EXPECT_EQ((*lines)[1].direction, "h2d");
  EXPECT_EQ((*lines)[1].container, "box");
}

TEST(TallyFile, OtherTextIsAnErrorAndNoException) {
  for (const char* text : {"", "[", "[]", "{}", R"({"functions": 5})", R"({"functions": [5]})",
                           R"({"functions": [{"function": 1}]})",
                           R"({"functions": [{"function": "ncclSend", "calls": -1}]})",
                           R"({"functions": [{"function": "ncclSend", "calls": "1"}]})"}) {
    EXPECT_FALSE(parse_tally(text, "")) << text;
  }
}

}  // namespace
}  // namespace ingero::cli
