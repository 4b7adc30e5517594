// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "export/debug_state.h"

namespace ingero::exporting {
namespace {

using nlohmann::json;

constexpr std::uint16_t kAllReduce = 1;
constexpr std::uint16_t kInitRank = 40;

constexpr model::CgroupId kCgroup{77};

Workload lookup(model::CgroupId id) { return {"", "", id == kCgroup ? "abc\x01\xfe" : ""}; }

model::Snapshot sample() {
  model::Snapshot snapshot;
  snapshot.method = model::AttachMethod::kPerf;
  model::Library library;
  library.file = {(8U << 20) | 3, 5, 1234};
  library.path = "/tmp/od\nd\xff/libnccl.so.2";
  library.kind = model::LibraryKind::kNccl;
  library.version = "2.28.9";
  library.method = model::AttachMethod::kPerf;
  library.probes = {{"ncclAllReduce", 0x1234, true}};
  library.refused = {{"ncclSend", "no room for a probe"}};
  model::Library bare;
  bare.file = {1, 0, 2};
  bare.kind = model::LibraryKind::kCuda;
  bare.reason = "permission denied";
  snapshot.libraries = {library, bare};
  snapshot.processes = {{{12, 120}, kCgroup, "py\x1b[31m", {library.file, {9, 9, 9}}}};
  model::Communicator comm;
  comm.process = {12, 120};
  comm.cgroup = kCgroup;
  comm.handle = 0xdead;
  comm.id_hash = 0xbeef;
  comm.rank = 2;
  comm.nranks = 4;
  comm.collectives = 9;
  comm.function = kInitRank;
  comm.name = "dp";
  snapshot.communicators = {comm};
  model::CallTotals totals;
  totals.calls = 3;
  totals.errors = 1;
  totals.bytes = 100;
  snapshot.calls = {{{12, 120}, kCgroup, kAllReduce, 0, totals},
                    {{0, 0}, kCgroup, kAllReduce, 0, totals}};
  snapshot.refusals = {{"permission", "attach x: permission denied", 12, 2}};
  snapshot.events_lost = {{"call_ring_full", 4}};
  return snapshot;
}

TEST(DebugState, TellsProcessesFilesAndProbes) {
  const json state = debug_state(sample(), lookup, json{{"config", 1}});
  EXPECT_EQ(state["method"], "perf");
  EXPECT_EQ(state["config"], 1);
  const json& process = state["processes"][0];
  EXPECT_EQ(process["pid"], 12);
  EXPECT_EQ(process["start_ns"], 120);
  EXPECT_EQ(process["container"], "abc\\x01\\xfe");
  EXPECT_EQ(process["libraries"][0], "/tmp/od\\x0ad\\xff/libnccl.so.2");
  EXPECT_EQ(process["libraries"][1], "0:9 9 9");
  const json& file = state["files"][0];
  EXPECT_EQ(file["device"], "8:3");
  EXPECT_EQ(file["inode"], 1234);
  EXPECT_EQ(file["generation"], 5);
  EXPECT_EQ(file["kind"], "nccl");
  EXPECT_EQ(file["version"], "2.28.9");
  EXPECT_EQ(file["probes"][0],
            (json{{"symbol", "ncclAllReduce"}, {"offset", "0x1234"}, {"moved", true}}));
  EXPECT_EQ(file["refused_symbols"][0]["reason"], "no room for a probe");
  EXPECT_EQ(state["files"][1]["not_attached"], "permission denied");
}

TEST(DebugState, TellsCommunicatorsCallsAndLosses) {
  const json state = debug_state(sample(), lookup, {});
  const json& comm = state["communicators"][0];
  EXPECT_EQ(comm["handle"], "0xdead");
  EXPECT_EQ(comm["comm_id_hash"], "000000000000beef");
  EXPECT_EQ(comm["rank"], 2);
  EXPECT_EQ(comm["created_by"], "ncclCommInitRank");
  ASSERT_EQ(state["calls"].size(), 1U);
  EXPECT_EQ(state["calls"][0]["function"], "ncclAllReduce");
  EXPECT_EQ(state["calls"][0]["calls"], 6);
  EXPECT_EQ(state["calls"][0]["errors"], 2);
  EXPECT_EQ(state["refusals"][0]["count"], 2);
  EXPECT_EQ(state["events_lost"]["call_ring_full"], 4);
  EXPECT_TRUE(state["waiting_for"].empty());
}

TEST(DebugState, HostileStringsBecomeValidJson) {
  const auto text = debug_state_text(sample(), lookup, json{{"bad", "\xff\xfe"}});
  ASSERT_TRUE(text);
  EXPECT_TRUE(json::accept(*text));
  EXPECT_EQ(text->find('\x1b'), std::string::npos);
}

TEST(DebugState, SaysWhatItWaitsFor) {
  model::Snapshot snapshot;
  const auto only = [&] { return waiting_for(snapshot, !snapshot.calls.empty()).at(0); };
  EXPECT_EQ(only(), "no process maps libnccl, libcudart or libcuda yet");
  snapshot = sample();
  snapshot.calls.clear();
  EXPECT_EQ(only(), "no traced function was called yet");
  snapshot.libraries[0].probes.clear();
  EXPECT_EQ(only(), "no library has a probe: the reasons stand in files");
}

TEST(DebugState, AnEmptySnapshotHasEveryMember) {
  const json state = debug_state({}, nullptr, {});
  for (const char* member : {"method", "processes", "files", "communicators", "calls", "refusals",
                             "events_lost", "unattributed_calls", "attach_failures"}) {
    EXPECT_TRUE(state.contains(member)) << member;
  }
}

}  // namespace
}  // namespace ingero::exporting
