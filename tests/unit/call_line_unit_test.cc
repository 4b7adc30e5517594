// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "cli/call_line.h"
#include "cli/container_name.h"
#include "model/functions.h"

namespace ingero::cli {
namespace {

constexpr std::int64_t kUnixNs = 1'769'850'183'123'456'789;  // 2026-01-31 09:03:03 UTC
constexpr const char* kContainer =
    "3f2a9c81d0b7e4f5a6c81d0b7e4f5a6c3f2a9c81d0b7e4f5a6c81d0b7e4f5a6c";

std::uint16_t id_of(std::string_view symbol) {
  for (const auto& function : model::api_functions()) {
    if (function.symbol == symbol) return function.id;
  }
  ADD_FAILURE() << "no row for " << symbol;
  return 0;
}

call_event all_reduce() {
  call_event event{};
  event.header.kind = EVENT_CALL;
  event.header.tid = 815;
  event.header.tgid = 812;
  event.header.process_start_ns = 77;
  event.header.cgroup_id = 4242;
  event.duration_ns = 12'345;
  event.comm = 0x7f12'3400;
  event.comm_id_hash = 0x00ab'cdef'0123'4567;
  event.count = 1 << 20;
  event.bytes = 4 << 20;
  event.sequence = 9;
  event.rank = 3;
  event.nranks = 8;
  event.function = id_of("ncclAllReduce");
  event.datatype = 7;
  event.group_depth = 1;
  return event;
}

call_event copy() {
  call_event event{};
  event.header.tid = event.header.tgid = 900;
  event.rank = RANK_UNKNOWN;
  event.bytes = 1536;
  event.function = id_of("cudaMemcpyAsync_ptsz");
  event.direction = COPY_H2D;
  event.datatype = 7;  // nothing that a copy has
  event.result = 2;
  return event;
}

std::string text_line(const call_event& event, std::string_view container) {
  fmt::memory_buffer out;
  append_call_text(out, event, kUnixNs, container);
  return fmt::to_string(out);
}

std::string json_line(const call_event& event, std::string_view container) {
  fmt::memory_buffer out;
  append_call_json(out, event, kUnixNs, container);
  return fmt::to_string(out);
}

TEST(CallJson, CollectiveHasEveryField) {
  const auto line = nlohmann::json::parse(json_line(all_reduce(), kContainer));
  const nlohmann::json expected = {{"timestamp_ns", kUnixNs},
                                   {"duration_ns", 12345},
                                   {"op", "ALL_REDUCE"},
                                   {"function", "ncclAllReduce"},
                                   {"pid", 812},
                                   {"tid", 815},
                                   {"container", kContainer},
                                   {"comm_id_hash", "00abcdef01234567"},
                                   {"rank", 3},
                                   {"nranks", 8},
                                   {"count", 1048576},
                                   {"datatype", "float32"},
                                   {"bytes", 4194304},
                                   {"result", 0},
                                   {"direction", ""},
                                   {"comm", "0x7f123400"},
                                   {"stream", "0x0"},
                                   {"sequence", 9},
                                   {"group_depth", 1},
                                   {"peer", nullptr},
                                   {"root", nullptr},
                                   {"reduce_op", "sum"},
                                   {"process_start_ns", 77},
                                   {"cgroup_id", 4242}};
  EXPECT_EQ(line, expected);
}

TEST(CallJson, CopyHasDirectionAndNoNcclFields) {
  const auto line = nlohmann::json::parse(json_line(copy(), ""));
  EXPECT_EQ(line["op"], "MEMCPY");
  EXPECT_EQ(line["function"], "cudaMemcpyAsync_ptsz");
  EXPECT_EQ(line["direction"], "h2d");
  EXPECT_EQ(line["datatype"], "");
  EXPECT_EQ(line["comm"], "");
  EXPECT_EQ(line["comm_id_hash"], "");
  EXPECT_EQ(line["reduce_op"], "");
  EXPECT_EQ(line["stream"], "0x0");
  EXPECT_EQ(line["result"], 2);
  EXPECT_TRUE(line["rank"].is_null());
  EXPECT_TRUE(line["nranks"].is_null());
  EXPECT_TRUE(line["peer"].is_null());
  EXPECT_TRUE(line["root"].is_null());
}

TEST(CallJson, RootAndRankZeroAreNumbersAndNotNull) {
  call_event event = all_reduce();
  event.function = id_of("ncclReduce");
  event.rank = 0;
  event.peer = 0;
  const auto line = nlohmann::json::parse(json_line(event, ""));
  EXPECT_EQ(line["rank"], 0);
  EXPECT_EQ(line["root"], 0);
  EXPECT_TRUE(line["peer"].is_null());
}

TEST(CallJson, SendHasAPeerAndNoRoot) {
  call_event event = all_reduce();
  event.function = id_of("ncclSend");
  event.peer = 5;
  const auto line = nlohmann::json::parse(json_line(event, ""));
  EXPECT_EQ(line["peer"], 5);
  EXPECT_TRUE(line["root"].is_null());
}

TEST(CallJson, LargestNumbersSurvive) {
  call_event event = all_reduce();
  event.count = event.bytes = event.comm = event.stream = event.comm_id_hash = UINT64_MAX;
  event.result = INT32_MIN;
  const auto line = nlohmann::json::parse(json_line(event, ""));
  EXPECT_EQ(line["bytes"].get<std::uint64_t>(), UINT64_MAX);
  EXPECT_EQ(line["count"].get<std::uint64_t>(), UINT64_MAX);
  EXPECT_EQ(line["comm"], "0xffffffffffffffff");
  EXPECT_EQ(line["comm_id_hash"], "ffffffffffffffff");
  EXPECT_EQ(line["result"], INT32_MIN);
}

TEST(CallJson, ContainerLabelIsEscaped) {
  const std::string hostile = "/a\"b\\c\nd\x1b[31m\xff/\xe2\x80\xae.slice";
  const std::string text = json_line(all_reduce(), hostile);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << "one line per call";
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  const auto line = nlohmann::json::parse(text);
  EXPECT_EQ(line["container"], "/a\"b\\c\nd\x1b[31m\xef\xbf\xbd/\xe2\x80\xae.slice");
}

TEST(CallJson, EveryFunctionParses) {
  for (const auto& function : model::api_functions()) {
    call_event event = all_reduce();
    event.function = function.id;
    const auto line = nlohmann::json::parse(json_line(event, kContainer));
    EXPECT_EQ(line["op"], model::op_name(function)) << function.symbol;
    EXPECT_EQ(line["function"], function.symbol);
    EXPECT_EQ(line.size(), 24U);
    EXPECT_EQ(line["direction"] == "", function.family != API_CUDA_COPY) << function.symbol;
  }
  call_event event = all_reduce();
  event.function = 1023;
  const auto line = nlohmann::json::parse(json_line(event, ""));
  EXPECT_EQ(line["function"], "function_1023");
  EXPECT_EQ(line["op"], "UNKNOWN");
}

TEST(CallText, Collective) {
  EXPECT_EQ(
      text_line(all_reduce(), kContainer),
      "09:03:03.123456      812      815  3f2a9c81d0b7  ncclAllReduce                 1,048,576  "
      "float32       4.00 MiB  ncclSuccess           12.3 us  rank 3/8  comm 00abcdef\n");
}

TEST(CallText, CopyShowsDirectionAndNoElements) {
  EXPECT_EQ(
      text_line(copy(), "/system.slice/ollama.service"),
      "09:03:03.123456      900      900  …ama.service  cudaMemcpyAsync_ptsz                  -  "
      "h2d           1.50 KiB  cudaErrorMemoryAllocation     0 ns\n");
}

TEST(CallText, HeaderStandsAboveTheColumns) {
  const std::string header(call_text_header());
  const std::string line = text_line(all_reduce(), kContainer);
  for (const auto& [title, value] : {std::pair{"FUNCTION", "ncclAllReduce"},
                                     {"TYPE", "float32"},
                                     {"CONTAINER", "3f2a9c81d0b7"},
                                     {"RESULT", "ncclSuccess"}}) {
    EXPECT_EQ(header.find(title), line.find(value)) << title;
  }
}

TEST(CallText, HostileLabelCannotMoveTheCursor) {
  const std::string line = text_line(all_reduce(), "/x/\x1b[2J\n");
  EXPECT_EQ(line.find('\x1b'), std::string::npos);
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
}

TEST(ContainerName, IdsAreCutAtTheEndAndPathsAtTheStart) {
  EXPECT_EQ(short_container(kContainer, 12), "3f2a9c81d0b7");
  EXPECT_EQ(short_container("/user.slice/ssh.service", 12), "ssh.service");
  EXPECT_EQ(short_container("/user.slice/user-1000.slice", 12), "…-1000.slice");
  EXPECT_EQ(short_container("/", 12), "/");
  EXPECT_EQ(short_container("/a/", 12), "a");
  EXPECT_EQ(short_container("", 12), "-");
  EXPECT_EQ(short_container("/aaaa\xc3\xa4\xc3\xa4\xc3\xa4", 6), "…\xc3\xa4\xc3\xa4")
      << "a character is not cut in two";
}

TEST(CallJson, IsFastEnoughForABusyHost) {
  constexpr int lines = 200'000;
  const call_event event = all_reduce();
  fmt::memory_buffer out;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < lines; ++i) {
    if (out.size() > 64 * 1024) out.clear();
    append_call_json(out, event, kUnixNs + i, kContainer);
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  RecordProperty("lines_per_second", static_cast<int>(lines / took.count()));
  std::printf("%.0f JSON lines per second\n", lines / took.count());
  EXPECT_GT(lines / took.count(), 10'000) << "loose: a shared or instrumented machine is slow";
}

}  // namespace
}  // namespace ingero::cli
