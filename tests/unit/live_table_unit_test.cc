// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "cli/live_table.h"
#include "cli/terminal.h"
#include "cli/text_table.h"
#include "model/functions.h"

namespace ingero::cli {
namespace {

using model::CallSeries;
using model::CgroupId;
using model::ProcessKey;
using model::Snapshot;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr CgroupId kPod{7001};
constexpr CgroupId kHost{42};
const model::FileKey kNcclFile{0x800001, 1, 11};
const model::FileKey kCudartFile{0x800001, 1, 12};

std::string label_of(CgroupId cgroup) {
  if (cgroup == kPod) return "3f2a9c81d0b7e4f5a6c81d0b7e4f5a6c3f2a9c81d0b7e4f5a6c81d0b7e4f5a6c";
  if (cgroup == kHost) return "/system.slice/bench.service";
  return "";
}

std::uint16_t id_of(std::string_view symbol) {
  for (const auto& function : model::api_functions()) {
    if (function.symbol == symbol) return function.id;
  }
  ADD_FAILURE() << "no row for " << symbol;
  return 0;
}

CallSeries series(ProcessKey process, CgroupId cgroup, std::string_view symbol, std::uint64_t calls,
                  std::uint64_t bytes, std::uint64_t ns_per_call = 10'000,
                  std::uint8_t direction = 0) {
  CallSeries out{process, cgroup, id_of(symbol), direction, {}};
  out.totals.calls = calls;
  out.totals.bytes = bytes;
  out.totals.duration_ns = calls * ns_per_call;
  out.totals.durations[model::duration_bucket(ns_per_call)] = calls;
  return out;
}

model::Library library(model::FileKey file, model::LibraryKind kind, std::string version,
                       std::size_t probes) {
  model::Library out;
  out.file = file;
  out.kind = kind;
  out.version = std::move(version);
  out.method = model::AttachMethod::kSession;
  out.probes.resize(probes);
  return out;
}

const ProcessKey kTrainer{812, 5};
const ProcessKey kBench{99, 6};

Snapshot base_snapshot() {
  Snapshot snapshot;
  snapshot.unix_ns = 1'769'850'183 * static_cast<std::int64_t>(kSecond);
  snapshot.method = model::AttachMethod::kSession;
  snapshot.libraries = {library(kNcclFile, model::LibraryKind::kNccl, "2.28.9", 24),
                        library(kCudartFile, model::LibraryKind::kCudart, "13.0", 20)};
  snapshot.processes = {{kTrainer, kPod, "python3", {kNcclFile, kCudartFile}},
                        {kBench, kHost, "bench", {kCudartFile}}};
  snapshot.events_lost = {{"call_ring_full", 0}, {"process_folded", 0}};
  return snapshot;
}

Snapshot first_snapshot() {
  Snapshot snapshot = base_snapshot();
  snapshot.calls = {series(kTrainer, kPod, "ncclAllReduce", 1000, 4'000ULL << 20),
                    series(kTrainer, kPod, "ncclGroupEnd", 1000, 0),
                    series(kBench, kHost, "cudaMemcpyAsync", 50, 50 << 10, 3'000, COPY_H2D)};
  return snapshot;
}

Snapshot second_snapshot() {
  Snapshot snapshot = base_snapshot();
  snapshot.calls = {series(kTrainer, kPod, "ncclAllReduce", 3400, 4'000ULL << 20),
                    series(kTrainer, kPod, "ncclGroupEnd", 1020, 0),
                    series(kBench, kHost, "cudaMemcpyAsync", 50, 50 << 10, 3'000, COPY_H2D)};
  snapshot.calls[0].totals.bytes += 2400ULL << 20;
  snapshot.calls[0].totals.errors = 3;
  return snapshot;
}

LiveView view_of(const Snapshot* before, const Snapshot& now) {
  return LiveView{{before, 10 * kSecond}, {&now, 12 * kSecond}, label_of, 125 * kSecond};
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines{""};
  for (const char c : text) {
    if (c == '\n') {
      lines.emplace_back();
    } else {
      lines.back() += c;
    }
  }
  return lines;
}

TEST(LiveTable, FrameOfTwoContainers) {
  const Snapshot before = first_snapshot();
  const Snapshot now = second_snapshot();
  EXPECT_EQ(
      render_frame(view_of(&before, now), {0, 0, false}),
      "ingero  2 processes  2 libraries  44 probes (session)  1,210 calls/s  lost 0  up 2m05s\n"
      "CONTAINER     PROCESS           LIBRARY       OPERATION             CALLS/S   BYTES/S      "
      "P50      P99        CALLS  ERRORS\n"
      "3f2a9c81d0b7  812 python3       nccl 2.28.9   ncclAllReduce           1,200  1.17 GiB  "
      "10.0 us  12.0 us        3,400       3\n"
      "                                nccl 2.28.9   ncclGroupEnd             10.0         -  "
      "10.0 us  12.0 us        1,020       0\n"
      "…nch.service  99 bench          cudart 13.0   cudaMemcpyAsync h2d         0         0  "
      "      -        -           50       0");
}

TEST(LiveTable, NoIntervalShowsTotalsWithoutRates) {
  const Snapshot now = first_snapshot();
  EXPECT_THAT(render_frame(view_of(nullptr, now), {0, 0, false}),
              AllOf(HasSubstr("- calls/s"), HasSubstr("1,000"), Not(HasSubstr("inf")),
                    Not(HasSubstr("nan"))));
}

TEST(LiveTable, EmptyNodeSaysWhatItWaitsFor) {
  Snapshot empty;
  EXPECT_THAT(render_frame(view_of(nullptr, empty), {0, 0, false}),
              HasSubstr("waiting: no process maps libnccl, libcudart or libcuda yet"));
  EXPECT_THAT(render_plain(view_of(nullptr, empty)), HasSubstr("waiting: no process maps"));
  EXPECT_EQ(render_frame(LiveView{}, {80, 24, true}), "starting");
  EXPECT_EQ(render_plain(LiveView{}), "");
}

TEST(LiveTable, LibraryWithoutCallsIsNotWaitedFor) {
  const Snapshot now = base_snapshot();
  EXPECT_THAT(render_frame(view_of(nullptr, now), {}), HasSubstr("attached, no calls yet"));
}

TEST(LiveTable, LossIsRedAndSaysWhy) {
  const Snapshot before = first_snapshot();
  Snapshot now = second_snapshot();
  EXPECT_THAT(render_frame(view_of(&before, now), {0, 0, true}),
              HasSubstr("\x1b[32mlost 0\x1b[0m"));
  now.events_lost["call_ring_full"] = 1200;
  EXPECT_THAT(render_frame(view_of(&before, now), {0, 0, true}),
              HasSubstr("\x1b[31mlost 1,200 (call_ring_full 1,200)\x1b[0m"));
  EXPECT_THAT(render_plain(view_of(&before, now)), HasSubstr("lost 1,200 (call_ring_full 1,200)"));
}

TEST(LiveTable, RefusedLibrariesAreNamed) {
  Snapshot now = base_snapshot();
  for (int i = 0; i < 4; ++i) {
    const model::FileKey file{1, 1, 100U + static_cast<unsigned>(i)};
    now.libraries.push_back(library(file, model::LibraryKind::kNccl, "", 0));
    now.libraries.back().path = "/opt/\x1b[31m/libnccl.so.2";
    now.libraries.back().reason = "permission denied";
  }
  const std::string frame = render_frame(view_of(nullptr, now), {0, 0, false});
  EXPECT_THAT(frame, HasSubstr("not traced: /opt/\\x1b[31m/libnccl.so.2: permission denied"));
  EXPECT_THAT(frame, HasSubstr("not traced: 2 more"));
}

TEST(LiveTable, ProcessThatEndsIsNoBurstOfCalls) {
  const Snapshot before = first_snapshot();
  Snapshot now = second_snapshot();
  // The kernel's totals of the bench have moved to the ended processes of its container.
  now.calls[2].process = ProcessKey{};
  now.calls[2].totals.calls = 60;
  const auto rows = live_rows({&before, 0}, {&now, 2 * kSecond}, label_of);
  const auto ended = std::find_if(rows.begin(), rows.end(),
                                  [](const LiveRow& row) { return row.process.tgid == 0; });
  ASSERT_NE(ended, rows.end());
  EXPECT_EQ(ended->calls, 60U);
  EXPECT_EQ(ended->interval_calls, 10U);
  EXPECT_THAT(render_frame(view_of(&before, now), {}), HasSubstr("(ended)"));
}

TEST(LiveTable, SamePidOfAnotherProcessIsAnotherRow) {
  Snapshot before = first_snapshot();
  Snapshot now = first_snapshot();
  for (CallSeries& row : now.calls) row.process.start_ns += 1000;
  for (const LiveRow& row : live_rows({&before, 0}, {&now, kSecond}, label_of)) {
    EXPECT_EQ(row.interval_calls, row.calls) << "nothing is subtracted from a new process";
  }
}

TEST(LiveTable, TotalsThatGoBackGiveNoNegativeRate) {
  const Snapshot before = second_snapshot();
  const Snapshot now = first_snapshot();
  for (const LiveRow& row : live_rows({&before, 0}, {&now, kSecond}, label_of)) {
    EXPECT_EQ(row.calls_per_s, 0.0);
    EXPECT_EQ(row.bytes_per_s, 0.0);
    EXPECT_FALSE(row.p50_ns);
  }
}

TEST(LiveTable, VariantsOfOneApiShareARowAndDirectionsDoNot) {
  Snapshot now = base_snapshot();
  now.calls = {series(kBench, kHost, "cudaMemcpyAsync", 1, 8, 100, COPY_H2D),
               series(kBench, kHost, "cudaMemcpyAsync_ptsz", 2, 8, 100, COPY_H2D),
               series(kBench, kHost, "cudaMemcpyAsync", 4, 8, 100, COPY_D2H)};
  const auto rows = live_rows({}, {&now, kSecond}, label_of);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].operation, "cudaMemcpyAsync d2h");
  EXPECT_EQ(rows[1].operation, "cudaMemcpyAsync h2d");
  EXPECT_EQ(rows[1].calls, 3U);
}

TEST(LiveTable, SmallChangesOfRateDoNotMoveRows) {
  const Snapshot before = base_snapshot();
  const auto order_at = [&](std::uint64_t bench, std::uint64_t trainer) {
    Snapshot now = base_snapshot();
    now.calls = {series(kTrainer, kPod, "ncclAllReduce", trainer, 1),
                 series(kBench, kHost, "cudaMemcpyAsync", bench, 1, 10, COPY_H2D)};
    return live_rows({&before, 0}, {&now, kSecond}, label_of).front().process.tgid;
  };
  EXPECT_EQ(order_at(300, 310), order_at(310, 300));
  EXPECT_EQ(order_at(10, 100'000), kTrainer.tgid);
  EXPECT_EQ(order_at(100'000, 10), kBench.tgid);
}

TEST(LiveTable, RowsOfAContainerAndProcessStayTogether) {
  Snapshot now = base_snapshot();
  const Snapshot before = base_snapshot();
  for (std::uint32_t i = 0; i < 60; ++i) {
    const ProcessKey process{100 + i % 6, 1};
    now.calls.push_back(series(process, i % 2 ? kPod : kHost, i % 3 ? "ncclAllReduce" : "ncclSend",
                               1ULL << (i % 17), 1));
  }
  const auto rows = live_rows({&before, 0}, {&now, kSecond}, label_of);
  std::set<std::pair<CgroupId, ProcessKey>> left;
  for (std::size_t i = 1; i < rows.size(); ++i) {
    const auto group = [](const LiveRow& row) { return std::pair(row.cgroup, row.process); };
    if (group(rows[i]) == group(rows[i - 1])) continue;
    left.insert(group(rows[i - 1]));
    EXPECT_FALSE(left.contains(group(rows[i]))) << "row " << i << " is away from its group";
  }
}

TEST(LiveTable, HostileNamesStayText) {
  const Snapshot before = base_snapshot();
  Snapshot now = second_snapshot();
  now.processes[0].comm = "\x1b[2J\n\xffx";
  LiveView view = view_of(&before, now);
  view.container_of = [](CgroupId) { return std::string("/a/\x1b]0;x\x07\n"); };
  now.libraries[0].version = "2\x1b[0m";
  for (const std::string& text : {render_frame(view, {0, 0, false}), render_plain(view)}) {
    for (const char c : text) EXPECT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= 0x20);
    EXPECT_THAT(text, HasSubstr("812 \\x1b[2J\\x0a\\xffx"));
  }
}

TEST(LiveTable, FitsEveryTerminal) {
  const Snapshot before = first_snapshot();
  Snapshot now = second_snapshot();
  now.events_lost["call_ring_full"] = 123456789;
  for (std::uint32_t i = 0; i < 50; ++i) {
    now.calls.push_back(series({2000 + i, 1}, kPod, "cudaMemcpy2DFromArrayAsync_ptsz", i, i));
  }
  for (const std::size_t width : {1U, 5U, 20U, 40U, 60U, 80U, 100U, 132U, 200U}) {
    for (const std::size_t height : {1U, 2U, 3U, 4U, 10U, 24U, 100U}) {
      const auto lines = lines_of(render_frame(view_of(&before, now), {width, height, false}));
      EXPECT_LE(lines.size(), height);
      for (const std::string& line : lines) EXPECT_LE(display_width(line), width) << line;
    }
  }
}

TEST(LiveTable, RowsBelowTheScreenAreCounted) {
  const Snapshot before = base_snapshot();
  Snapshot now = base_snapshot();
  for (std::uint32_t i = 0; i < 50; ++i) {
    now.calls.push_back(series({2000 + i, 1}, kPod, "ncclAllReduce", 1, 1));
  }
  const auto lines = lines_of(render_frame(view_of(&before, now), {120, 24, false}));
  ASSERT_EQ(lines.size(), 24U);
  EXPECT_EQ(lines.back(), "… and 29 more rows");
  EXPECT_EQ(lines_of(render_frame(view_of(&before, now), {120, 52, false})).size(), 52U);
}

TEST(LiveTable, NarrowTerminalKeepsPidOperationAndRate) {
  const Snapshot before = first_snapshot();
  const Snapshot now = second_snapshot();
  const auto narrow = lines_of(render_frame(view_of(&before, now), {60, 24, false}));
  EXPECT_THAT(narrow[1], AllOf(HasSubstr("OPERATION"), HasSubstr("CALLS/S"), HasSubstr("ERRORS")));
  EXPECT_THAT(narrow[2], AllOf(HasSubstr("812 "), HasSubstr("ncclAllReduce"), HasSubstr("1,200")));
  const auto usual = lines_of(render_frame(view_of(&before, now), {80, 24, false}));
  EXPECT_THAT(usual[1], AllOf(HasSubstr("CONTAINER"), HasSubstr("BYTES/S"), HasSubstr("P99")));
  EXPECT_THAT(usual[4], HasSubstr("cudaMemcpyAsync h2d"));
}

TEST(LiveTable, PlainModeHasOneLinePerActiveRow) {
  const Snapshot before = first_snapshot();
  const Snapshot now = second_snapshot();
  EXPECT_EQ(render_plain(view_of(&before, now)),
            "09:03:03Z 3f2a9c81d0b7 812 python3 nccl 2.28.9 ncclAllReduce 1,200/s 1.17 GiB/s "
            "p50 10.0 us p99 12.0 us calls 3400 errors 3\n"
            "09:03:03Z 3f2a9c81d0b7 812 python3 nccl 2.28.9 ncclGroupEnd 10.0/s - "
            "p50 10.0 us p99 12.0 us calls 1020 errors 0\n");
  EXPECT_EQ(render_plain(view_of(&now, now)), "") << "nothing happened";
}

/// Enough of a terminal to see what a frame leaves on it.
class FakeTerminal {
 public:
  explicit FakeTerminal(std::size_t height) : height_(height) { lines_.resize(height); }
  void write(const std::string& text) {
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '\x1b') {
        const std::size_t end = text.find_first_of("hlmAHJK", i + 2);
        apply(text[end], text.substr(i + 2, end - i - 2));
        i = end;
      } else if (text[i] == '\r') {
        column_ = 0;
      } else if (text[i] == '\n') {
        if (++row_ == height_) scroll();
      } else {
        lines_[row_].resize(std::max(lines_[row_].size(), column_ + 1), ' ');
        lines_[row_][column_++] = text[i];
      }
    }
  }
  std::vector<std::string> lines() const { return lines_; }
  int scrolled() const { return scrolled_; }

 private:
  void scroll() {
    lines_.erase(lines_.begin());
    lines_.emplace_back();
    --row_;
    ++scrolled_;
  }
  void apply(char command, const std::string& argument) {
    if (command == 'A') row_ -= std::min<std::size_t>(row_, std::stoul(argument));
    if (command == 'H') row_ = column_ = 0;
    if (command == 'K' || command == 'J')
      lines_[row_].resize(std::min(lines_[row_].size(), column_));
    if (command == 'J') {
      for (std::size_t i = argument == "2" ? 0 : row_ + 1; i < height_; ++i) lines_[i].clear();
    }
  }
  std::size_t height_, row_ = 0, column_ = 0;
  int scrolled_ = 0;
  std::vector<std::string> lines_;
};

TEST(LiveScreen, FrameReplacesTheOneBefore) {
  const TerminalSize size{20, 6};
  FakeTerminal terminal(6);
  LiveScreen screen(-1);
  terminal.write("$ ingero trace\r\n");
  terminal.write(screen.compose("one\nlong line\nthree\nfour", size));
  EXPECT_THAT(terminal.lines(),
              testing::ElementsAre("$ ingero trace", "one", "long line", "three", "four", ""));
  terminal.write(screen.compose("1\n2\n", size));
  EXPECT_THAT(terminal.lines(), testing::ElementsAre("$ ingero trace", "1", "2", "", "", ""));
  terminal.write(screen.compose("a\nb\nc", size));
  EXPECT_THAT(terminal.lines(), testing::ElementsAre("$ ingero trace", "a", "b", "c", "", ""));
}

TEST(LiveScreen, FullScreenDoesNotScrollAwayItself) {
  const TerminalSize size{20, 3};
  FakeTerminal terminal(3);
  LiveScreen screen(-1);
  terminal.write("$\r\n");
  for (int i = 0; i < 5; ++i) {
    terminal.write(screen.compose("a\nb\nc", size));
    EXPECT_THAT(terminal.lines(), testing::ElementsAre("a", "b", "c"));
  }
  EXPECT_EQ(terminal.scrolled(), 1) << "once, for the prompt";
}

TEST(LiveScreen, ResizeStartsOnACleanScreen) {
  FakeTerminal terminal(4);
  LiveScreen screen(-1);
  terminal.write(screen.compose("wide old frame\nx", {20, 4}));
  terminal.write(screen.compose("new", {10, 4}));
  EXPECT_THAT(terminal.lines(), testing::ElementsAre("new", "", "", ""));
}

TEST(Terminal, WhatIsNoTerminalHasDefaults) {
  EXPECT_FALSE(is_terminal(-1));
  EXPECT_FALSE(wants_colour(-1));
  EXPECT_EQ(terminal_size(-1), (TerminalSize{80, 24}));
  EXPECT_FALSE(write_all(-1, "x"));
  EXPECT_TRUE(write_all(-1, ""));
}

}  // namespace
}  // namespace ingero::cli
