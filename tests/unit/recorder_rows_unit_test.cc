// SPDX-License-Identifier: Apache-2.0
// What the tables and views of a recording say of calls, and of what happened beside them.
#include <gmock/gmock.h>

#include "record/schema.h"
#include "recorder_test.h"

namespace ingero::record {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Row = std::vector<std::string>;

std::uint64_t all_losses(const RecorderStatus& status) {
  std::uint64_t sum = 0;
  for (const auto& [reason, count] : status.losses) sum += count;
  return sum;
}

TEST_F(RecorderTest, WritesACallAsTheColumnsSay) {
  auto recorder = make();
  EXPECT_TRUE(recorder->add(nccl_call()));
  const auto status = recorder->finish("interrupted");
  EXPECT_EQ(status.nccl_calls, 1U);
  EXPECT_EQ(all_losses(status), 0U);
  EXPECT_THAT(
      query({path_},
            "SELECT timestamp_ns, duration_ns, op, function, rank, nranks, comm, comm_id_hash, "
            "datatype, reduce_op, count, bytes, peer, root, stream, group_depth, result, pid, tid, "
            "process_start_ns, cgroup_id, sequence FROM nccl_events"),
      ElementsAre(Row{"1700000000001000000",
                      "12345",
                      "ALL_REDUCE",
                      "ncclAllReduce",
                      "3",
                      "8",
                      "0x7f123400",
                      "00abcdef01234567",
                      "float32",
                      "sum",
                      "1048576",
                      "4194304",
                      "NULL",
                      "NULL",
                      "0x0",
                      "1",
                      "0",
                      "812",
                      "815",
                      "77",
                      "4242",
                      "9"}));
}

TEST_F(RecorderTest, WritesACopyAsTheColumnsSay) {
  auto recorder = make();
  recorder->add(cuda_call());
  recorder->add(cuda_call("cudaStreamSynchronize"));
  recorder->finish("interrupted");
  EXPECT_THAT(
      query({path_}, "SELECT op, function, direction, bytes, stream, result, pid FROM cuda_events"),
      ElementsAre(
          Row{"MEMCPY", "cudaMemcpyAsync", "h2d", "1536", "0x0", "2", "812"},
          Row{"STREAM_SYNCHRONIZE", "cudaStreamSynchronize", "NULL", "NULL", "0x0", "2", "812"}));
}

TEST_F(RecorderTest, PeerAndRootAreColumnsOfTheirOwn) {
  auto recorder = make();
  for (const char* symbol : {"ncclSend", "ncclReduce", "ncclAllReduce"}) {
    call_event event = nccl_call(symbol);
    event.peer = 5;
    recorder->add(event);
  }
  recorder->finish("interrupted");
  EXPECT_THAT(query({path_}, "SELECT peer, root FROM nccl_events"),
              ElementsAre(Row{"5", "NULL"}, Row{"NULL", "5"}, Row{"NULL", "NULL"}));
}

TEST_F(RecorderTest, WhatACallDoesNotHaveIsNull) {
  call_event event = nccl_call("ncclCommInitRank");
  event.rank = RANK_UNKNOWN;
  event.nranks = 0;
  event.comm = event.comm_id_hash = event.sequence = 0;
  auto recorder = make();
  recorder->add(event);
  recorder->finish("interrupted");
  EXPECT_THAT(query({path_},
                    "SELECT op, rank, nranks, comm, comm_id_hash, datatype, reduce_op, count, "
                    "bytes, sequence, stream FROM nccl_events"),
              ElementsAre(Row{"COMM_INIT_RANK", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL",
                              "NULL", "NULL", "NULL", "NULL"}));
}

TEST_F(RecorderTest, AFunctionThatItDoesNotKnowIsRecordedByItsNumber) {
  call_event event = nccl_call();
  event.function = 999;
  auto recorder = make();
  recorder->add(event);
  recorder->finish("interrupted");
  EXPECT_THAT(query({path_}, "SELECT op, function FROM nccl_events"),
              ElementsAre(Row{"UNKNOWN", "function_999"}));
}

TEST_F(RecorderTest, CallsOfOneThreadAndCommunicatorShareTheirContext) {
  auto recorder = make();
  for (int i = 0; i < 1000; ++i) {
    call_event event = nccl_call();
    event.sequence = static_cast<std::uint64_t>(i + 1);
    event.duration_ns = static_cast<std::uint64_t>(i);
    recorder->add(event);
  }
  recorder->finish("interrupted");
  EXPECT_EQ(value(path_, "SELECT COUNT(*) FROM nccl_events"), "1000");
  EXPECT_EQ(value(path_, "SELECT SUM(duration_ns) FROM nccl_events"), "499500");
  EXPECT_EQ(value(path_, "SELECT COUNT(*) FROM nccl_contexts"), "1");
  EXPECT_EQ(value(path_, "SELECT COUNT(*) FROM communicators"), "1");
}

TEST_F(RecorderTest, EveryFieldThatRepeatsTellsContextsApart) {
  auto recorder = make();
  const auto add = [&](auto change) {
    call_event event = nccl_call();
    change(event);
    recorder->add(event);
  };
  add([](call_event&) {});
  add([](call_event& event) { ++event.header.tid; });
  add([](call_event& event) { ++event.header.tgid; });
  add([](call_event& event) { ++event.header.process_start_ns; });
  add([](call_event& event) { ++event.header.cgroup_id; });
  add([](call_event& event) { ++event.comm; });
  add([](call_event& event) { ++event.comm_id_hash; });
  add([](call_event& event) { ++event.stream; });
  add([](call_event& event) { ++event.rank; });
  add([](call_event& event) { ++event.nranks; });
  add([](call_event& event) { ++event.redop; });
  add([](call_event& event) { ++event.datatype; });
  add([](call_event& event) { ++event.group_depth; });
  add([](call_event& event) { event.function = function_id("ncclAllGather"); });
  recorder->finish("interrupted");
  EXPECT_EQ(value(path_, "SELECT COUNT(*) FROM nccl_contexts"), "14");
  EXPECT_EQ(value(path_,
                  "SELECT COUNT(*) FROM (SELECT DISTINCT op, rank, nranks, comm, "
                  "comm_id_hash, datatype, reduce_op, stream, group_depth, pid, tid, "
                  "process_start_ns, cgroup_id FROM nccl_events)"),
            "14");
}

TEST_F(RecorderTest, WritesWhatTheAgentKnowsBesideTheCalls) {
  auto snapshot = std::make_shared<model::Snapshot>();
  model::Process process;
  process.key = {812, 77};
  process.comm = "trainer";
  process.cgroup = static_cast<model::CgroupId>(4242);
  snapshot->processes.push_back(process);
  model::Library library;
  library.file = {8 << 20 | 1, 0, 99};
  library.path = "/usr/lib/libnccl.so.2";
  library.kind = model::LibraryKind::kNccl;
  library.version = "2.28.9";
  snapshot->libraries.push_back(library);
  model::Communicator communicator;
  communicator.process = {812, 77};
  communicator.handle = 0x7f123400;
  communicator.id_hash = 0x00abcdef01234567;
  communicator.rank = 3;
  communicator.nranks = 8;
  communicator.name = "data-parallel";
  snapshot->communicators.push_back(communicator);
  auto recorder = make();
  recorder->add(nccl_call());
  recorder->update(snapshot);
  recorder->finish("interrupted");
  EXPECT_THAT(query({path_}, "SELECT pid, command, cgroup_id FROM processes"),
              ElementsAre(Row{"812", "trainer", "4242"}));
  EXPECT_THAT(query({path_}, "SELECT cgroup_id, namespace, pod, container FROM containers"),
              ElementsAre(Row{"4242", "team", "trainer-0", "cgroup-4242"}));
  EXPECT_THAT(query({path_}, "SELECT path, kind, version, probes FROM libraries"),
              ElementsAre(Row{"/usr/lib/libnccl.so.2", "nccl", "2.28.9", "0"}));
  EXPECT_THAT(query({path_}, "SELECT comm, comm_id_hash, rank, nranks, name FROM communicators"),
              ElementsAre(Row{"0x7f123400", "00abcdef01234567", "3", "8", "data-parallel"}));
}

TEST_F(RecorderTest, WhatIsNotRecordedOfTheSchedulerIsNullAndNotZero) {
  auto recorder = make();
  recorder->add(nccl_call());
  recorder->finish("interrupted");
  EXPECT_THAT(query({path_}, "SELECT run_queue_wait_ns, off_cpu_ns FROM collectives"),
              ElementsAre(Row{"NULL", "NULL"}));
  EXPECT_THAT(query({path_}, "SELECT wait_threshold_ns, off_cpu_threshold_ns FROM recording"),
              ElementsAre(Row{"NULL", "NULL"}));
}

TEST_F(RecorderTest, TheViewOfCollectivesFindsRetransmitsAndWaitsInTheWindow) {
  RecorderOptions options = options_for(path_);
  options.facts.wait_threshold_ns = 50;
  options.facts.off_cpu_threshold_ns = 500;
  auto recorder = make(std::move(options));
  recorder->add(nccl_call());
  const std::int64_t start = 1'700'000'000'001'000'000;
  for (const std::int64_t at : {start - 1, start, start + 12'345, start + 12'346}) {
    TcpEvent tcp;
    tcp.unix_ns = at;
    tcp.saddr = "2001:db8::1";
    recorder->add(tcp);
    SchedEvent sched;
    sched.unix_ns = at;
    sched.duration_ns = 100;
    sched.tid = 815;
    recorder->add(sched);
    sched.duration_ns = 1000;
    sched.off_cpu = true;
    sched.state = SleepState::kUninterruptible;
    recorder->add(sched);
    sched.tid = 816;  // another thread's
    recorder->add(sched);
  }
  TcpEvent other;
  other.unix_ns = start;
  other.cgroup_id = 5;
  other.process = model::ProcessKey{812, 77};
  recorder->add(other);
  auto snapshot = std::make_shared<model::Snapshot>();
  recorder->update(snapshot);
  recorder->finish("interrupted");
  EXPECT_THAT(
      query({path_},
            "SELECT pod, retransmits_in_window, run_queue_wait_ns, off_cpu_ns FROM collectives"),
      ElementsAre(Row{"trainer-0", "2", "200", "2000"}));
  EXPECT_THAT(
      query({path_}, "SELECT event, state, COUNT(*) FROM sched_events GROUP BY 1, 2"),
      ElementsAre(Row{"off_cpu", "uninterruptible", "8"}, Row{"run_queue_wait", "NULL", "4"}));
  EXPECT_THAT(query({path_}, "SELECT wait_threshold_ns, off_cpu_threshold_ns FROM recording"),
              ElementsAre(Row{"50", "500"}));
  EXPECT_THAT(query({path_}, "SELECT event, saddr, cgroup_id, pid FROM tcp_events LIMIT 1"),
              ElementsAre(Row{"tcp_retransmit_skb", "2001:db8::1", "NULL", "NULL"}));
  EXPECT_THAT(query({path_}, "SELECT pid, process_start_ns FROM tcp_events WHERE cgroup_id = 5"),
              ElementsAre(Row{"812", "77"}));
}

/// A join that compares each slow call with each segment takes minutes where there are many of both.
TEST_F(RecorderTest, JoinsByTimeAreLookedUpByEventAndTime) {
  make()->finish("interrupted");
  for (const std::string& table : {std::string("tcp_events"), std::string("sched_events")}) {
    std::string plan;
    for (const auto& row :
         query({path_},
               "EXPLAIN QUERY PLAN WITH slow AS (SELECT timestamp_ns, duration_ns "
               "FROM nccl_events WHERE op = 'ALL_REDUCE' AND duration_ns > 5) "
               "SELECT COUNT(t.timestamp_ns) FROM slow s LEFT JOIN " +
                   table +
                   " t ON t.timestamp_ns BETWEEN s.timestamp_ns AND "
                   "s.timestamp_ns + s.duration_ns AND t.event = 'x'"))
      plan += row.back() + "\n";
    EXPECT_THAT(plan, HasSubstr(table + "_event_time (event=? AND timestamp_ns>? AND "
                                        "timestamp_ns<?)"));
    EXPECT_THAT(plan, testing::Not(HasSubstr("AUTOMATIC")));
  }
}

TEST_F(RecorderTest, EveryTableAndColumnHasAComment) {
  make()->finish("interrupted");
  const auto tables =
      query({path_}, "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')");
  EXPECT_EQ(tables.size(), schema().size());
  for (const auto& table : tables) {
    const std::string name = table[0];
    EXPECT_EQ(value(path_,
                    "SELECT COUNT(*) FROM schema_comments WHERE length(comment) > 0 AND "
                    "column_name = '' AND table_name = '" +
                        name + "'"),
              "1")
        << name;
    const auto missing =
        query({path_}, "SELECT name FROM pragma_table_info('" + name +
                           "') WHERE name NOT IN (SELECT column_name FROM "
                           "schema_comments WHERE length(comment) > 0 AND table_name = '" +
                           name + "')");
    EXPECT_TRUE(missing.empty()) << name << "." << missing[0][0];
  }
}

TEST_F(RecorderTest, AViewHasTheColumnsThatTheSchemaSays) {
  make()->finish("interrupted");
  for (const SchemaTable& table : schema()) {
    std::string names;
    for (const SchemaColumn& column : table.columns) names += std::string(column.name) + ",";
    std::string found;
    for (const auto& row :
         query({path_}, "SELECT name FROM pragma_table_info('" + std::string(table.name) + "')"))
      found += row[0] + ",";
    EXPECT_EQ(found, names) << table.name;
  }
}

}  // namespace
}  // namespace ingero::record
