// SPDX-License-Identifier: Apache-2.0
// What a recording holds. Calls are stored as a narrow row (times, sizes, result) that refers to its
// context, the combination of everything that repeats from call to call: names, communicator, thread.
// The views nccl_events and cuda_events put both together again.
#include "record/schema.h"

#include <fmt/format.h>

#include "record/database.h"

namespace ingero::record {
namespace {

constexpr std::string_view kTimestamp = "start of the call: unix time in nanoseconds";
constexpr std::string_view kDuration =
    "time that the call took on the host, in nanoseconds; not the GPU's time";
constexpr std::string_view kGroupEnd =
    "end of the group that the call was made in: unix time in nanoseconds; there the queued call "
    "is "
    "carried out. NULL: outside of a group, or the end was not recorded";
constexpr std::string_view kSpan =
    "from the start of the call to its end, in a group to the end of that: nanoseconds on the host";
constexpr std::string_view kPid = "process id, as the host sees it";
constexpr std::string_view kTid = "thread id, as the host sees it";
constexpr std::string_view kProcessStart =
    "start of the process in nanoseconds since boot: with pid, what tells processes apart";
constexpr std::string_view kCgroup = "cgroup at the moment of the call; see containers";
constexpr std::string_view kNcclOp =
    "kind of call: ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, REDUCE, SEND, RECV, "
    "ALL_TO_ALL, GATHER, SCATTER, GROUP_START, GROUP_END, COMM_INIT_RANK, COMM_INIT_ALL, "
    "COMM_SPLIT, COMM_SHRINK, COMM_GROW, COMM_DESTROY, COMM_ABORT, COMM_FINALIZE, GET_UNIQUE_ID";
constexpr std::string_view kFunction = "name of the function that was called";
constexpr std::string_view kRank = "rank in the communicator; NULL: not known";
constexpr std::string_view kNranks = "size of the communicator; NULL: not known";
constexpr std::string_view kComm = "handle of the communicator, as hexadecimal text";
constexpr std::string_view kCommHash =
    "hash of the communicator's unique id, equal on all its ranks on all nodes; NULL: not known";
constexpr std::string_view kDatatype = "type of the elements: float32, bfloat16 ...";
constexpr std::string_view kReduceOp = "sum, prod, max, min, avg, custom";
constexpr std::string_view kPeer = "the other rank of a SEND or RECV";
constexpr std::string_view kRoot = "root rank of a collective that has one";
constexpr std::string_view kStream = "CUDA stream, as hexadecimal text";
constexpr std::string_view kGroupDepth = "ncclGroupStart calls that were open; 0: outside a group";
constexpr std::string_view kNcclBytes =
    "bytes of the message, as nccl-tests defines the size; NULL: not a collective";
constexpr std::string_view kCount = "elements, as they were passed; NULL: not a collective";
constexpr std::string_view kSequence =
    "number of the collective in its communicator: equal on all ranks; NULL: not a collective";
constexpr std::string_view kNcclResult = "ncclResult_t: 0 is success, 7 is in progress";
constexpr std::string_view kCudaResult = "cudaError_t or CUresult: 0 is success";
constexpr std::string_view kDirection = "h2d, d2h, d2d, h2h, default, unknown; NULL: not a copy";

std::vector<SchemaTable> make_schema() {
  return {
      {"nccl_events",
       "one row for each NCCL or RCCL call: collectives, sends and receives, groups, communicators",
       {{"timestamp_ns", "INTEGER", kTimestamp},
        {"duration_ns", "INTEGER", kDuration},
        {"op", "TEXT", kNcclOp},
        {"function", "TEXT", kFunction},
        {"rank", "INTEGER", kRank},
        {"nranks", "INTEGER", kNranks},
        {"comm", "TEXT", kComm},
        {"comm_id_hash", "TEXT", kCommHash},
        {"datatype", "TEXT", kDatatype},
        {"reduce_op", "TEXT", kReduceOp},
        {"count", "INTEGER", kCount},
        {"bytes", "INTEGER", kNcclBytes},
        {"peer", "INTEGER", kPeer},
        {"root", "INTEGER", kRoot},
        {"stream", "TEXT", kStream},
        {"group_depth", "INTEGER", kGroupDepth},
        {"result", "INTEGER", kNcclResult},
        {"pid", "INTEGER", kPid},
        {"tid", "INTEGER", kTid},
        {"process_start_ns", "INTEGER", kProcessStart},
        {"cgroup_id", "INTEGER", kCgroup},
        {"sequence", "INTEGER", kSequence},
        {"group_end_ns", "INTEGER", kGroupEnd},
        {"span_ns", "INTEGER", kSpan}},
       "",
       // CROSS JOIN keeps the order: each call, then its context, never the other way round.
       "SELECT c.timestamp_ns, c.duration_ns, x.op, x.function, x.rank, x.nranks, x.comm, "
       "x.comm_id_hash, x.datatype, x.reduce_op, c.count, c.bytes, x.peer, x.root, x.stream, "
       "x.group_depth, c.result, x.pid, x.tid, x.process_start_ns, x.cgroup_id, c.sequence, "
       "c.group_end_ns, COALESCE(c.group_end_ns - c.timestamp_ns, c.duration_ns) AS span_ns "
       "FROM nccl_calls c CROSS JOIN nccl_contexts x ON x.id = c.context_id"},
      {"cuda_events",
       "one row for each CUDA copy (runtime and driver) and stream synchronization",
       {{"timestamp_ns", "INTEGER", kTimestamp},
        {"duration_ns", "INTEGER", kDuration},
        {"op", "TEXT",
         "MEMCPY, MEMCPY_2D, MEMCPY_3D, MEMCPY_PEER, MEMCPY_BATCH, "
         "STREAM_SYNCHRONIZE"},
        {"function", "TEXT", kFunction},
        {"direction", "TEXT", kDirection},
        {"bytes", "INTEGER", "bytes copied; NULL: not a copy"},
        {"stream", "TEXT", kStream},
        {"result", "INTEGER", kCudaResult},
        {"pid", "INTEGER", kPid},
        {"tid", "INTEGER", kTid},
        {"process_start_ns", "INTEGER", kProcessStart},
        {"cgroup_id", "INTEGER", kCgroup}},
       "",
       "SELECT c.timestamp_ns, c.duration_ns, x.op, x.function, x.direction, c.bytes, x.stream, "
       "c.result, x.pid, x.tid, x.process_start_ns, x.cgroup_id "
       "FROM cuda_calls c CROSS JOIN cuda_contexts x ON x.id = c.context_id"},
      {"tcp_events",
       "one row for each TCP segment that the kernel sent again",
       {{"timestamp_ns", "INTEGER NOT NULL", "unix time in nanoseconds"},
        {"event", "TEXT NOT NULL", "tcp_retransmit_skb"},
        {"saddr", "TEXT", "address of the sender, IPv4 or IPv6"},
        {"daddr", "TEXT", "address of the receiver, IPv4 or IPv6"},
        {"sport", "INTEGER", "port of the sender"},
        {"dport", "INTEGER", "port of the receiver"},
        {"seq", "INTEGER", "sequence number of the segment"},
        {"state", "TEXT", "state of the connection, such as ESTABLISHED"},
        {"netns", "INTEGER", "inode of the network namespace"},
        {"cgroup_id", "INTEGER", "cgroup that the socket belongs to; NULL: not known"},
        {"pid", "INTEGER",
         "process that alone held the socket when looked at, within a second after the segment; "
         "NULL: several processes, none, or not known for sure"},
        {"process_start_ns", "INTEGER",
         "start of that process in nanoseconds since boot; NULL as pid"}},
       "",
       ""},
      {"sched_events",
       "one row for each time that a thread of a GPU process waited for a CPU, or was off it, for "
       "as long as recording.wait_threshold_ns or off_cpu_threshold_ns, or longer",
       {{"timestamp_ns", "INTEGER NOT NULL", "begin: unix time in nanoseconds"},
        {"duration_ns", "INTEGER NOT NULL", "length in nanoseconds"},
        {"event", "TEXT NOT NULL",
         "run_queue_wait: the thread was ready to run and did not; off_cpu: from leaving the CPU "
         "by blocking (not preempted) to running again, so it contains the wait for a CPU at its "
         "end, which may be a row of its own; without spans whose beginning was not seen"},
        {"cpu", "INTEGER", "CPU on which it ran then"},
        {"pid", "INTEGER", kPid},
        {"tid", "INTEGER", kTid},
        {"process_start_ns", "INTEGER", kProcessStart},
        {"cgroup_id", "INTEGER", "cgroup of the thread; see containers"},
        {"state", "TEXT",
         "how it slept: interruptible, uninterruptible (mostly the disk, or page faults), stopped "
         "(by a signal or a debugger); NULL: otherwise, or a run_queue_wait"}},
       "",
       ""},
      {"collectives",
       "the rows of nccl_events that move data, with their container and with what the kernel saw "
       "while the call ran, in a group until that had ended",
       {{"timestamp_ns", "INTEGER", kTimestamp},
        {"duration_ns", "INTEGER", kDuration},
        {"span_ns", "INTEGER", kSpan},
        {"op", "TEXT", kNcclOp},
        {"rank", "INTEGER", kRank},
        {"nranks", "INTEGER", kNranks},
        {"comm_id_hash", "TEXT", kCommHash},
        {"sequence", "INTEGER", kSequence},
        {"bytes", "INTEGER", kNcclBytes},
        {"result", "INTEGER", kNcclResult},
        {"pid", "INTEGER", kPid},
        {"tid", "INTEGER", kTid},
        {"process_start_ns", "INTEGER", kProcessStart},
        {"namespace", "TEXT", "Kubernetes namespace; NULL: none"},
        {"pod", "TEXT", "Kubernetes pod; NULL: none"},
        {"container", "TEXT", "name in the pod, else container id or cgroup path"},
        {"retransmits_in_window", "INTEGER",
         "TCP retransmits of the same cgroup, or of no known one, in the call's span"},
        {"run_queue_wait_ns", "INTEGER",
         "waits of the calling thread for a CPU that began in the call's span, in nanoseconds, "
         "without shorter ones than recording.wait_threshold_ns; NULL: none is recorded"},
        {"off_cpu_ns", "INTEGER",
         "off-CPU spans of the calling thread in the call's span, in nanoseconds, with the waits "
         "for a CPU at their ends, without shorter ones than recording.off_cpu_threshold_ns; NULL: "
         "none is recorded"}},
       "",
       "SELECT e.timestamp_ns, e.duration_ns, e.span_ns, e.op, e.rank, e.nranks, e.comm_id_hash, "
       "e.sequence, "
       "e.bytes, e.result, e.pid, e.tid, e.process_start_ns, k.namespace, k.pod, k.container, "
       "(SELECT COUNT(*) FROM tcp_events t WHERE t.timestamp_ns BETWEEN e.timestamp_ns AND "
       "e.timestamp_ns + e.span_ns AND t.event = 'tcp_retransmit_skb' AND "
       "(t.cgroup_id = e.cgroup_id OR t.cgroup_id IS NULL)) AS retransmits_in_window, "
       "CASE WHEN (SELECT wait_threshold_ns FROM recording) IS NOT NULL THEN "
       "(SELECT COALESCE(SUM(s.duration_ns), 0) FROM sched_events s WHERE s.timestamp_ns BETWEEN "
       "e.timestamp_ns AND e.timestamp_ns + e.span_ns AND s.event = 'run_queue_wait' AND "
       "s.tid = e.tid) END AS run_queue_wait_ns, "
       "CASE WHEN (SELECT off_cpu_threshold_ns FROM recording) IS NOT NULL THEN "
       "(SELECT COALESCE(SUM(s.duration_ns), 0) FROM sched_events s WHERE s.timestamp_ns BETWEEN "
       "e.timestamp_ns AND e.timestamp_ns + e.span_ns AND s.event = 'off_cpu' AND "
       "s.tid = e.tid) END AS off_cpu_ns "
       "FROM nccl_events e LEFT JOIN containers k ON k.cgroup_id = e.cgroup_id "
       "WHERE e.bytes IS NOT NULL"},
      {"processes",
       "processes that made a recorded call or that map a traced library",
       {{"pid", "INTEGER NOT NULL", kPid},
        {"process_start_ns", "INTEGER NOT NULL", kProcessStart},
        {"start_unix_ns", "INTEGER", "start of the process: unix time in nanoseconds"},
        {"command", "TEXT", "name of the program; NULL: gone before it was read"},
        {"cgroup_id", "INTEGER", "cgroup that the process was first seen in; see containers"}},
       ", PRIMARY KEY (pid, process_start_ns)) WITHOUT ROWID",
       ""},
      {"containers",
       "what stands behind a cgroup",
       {{"cgroup_id", "INTEGER PRIMARY KEY", "id of the cgroup"},
        {"namespace", "TEXT", "Kubernetes namespace; NULL: none"},
        {"pod", "TEXT", "Kubernetes pod; NULL: none"},
        {"container", "TEXT",
         "name in the pod, else container id or cgroup path; NULL: not known"}},
       "",
       ""},
      {"libraries",
       "files that export traced functions and that some process maps",
       {{"device", "INTEGER NOT NULL", "device of the file: major << 20 | minor"},
        {"inode", "INTEGER NOT NULL", "inode of the file"},
        {"generation", "INTEGER NOT NULL", "tells a reused inode number from the old file"},
        {"path", "TEXT", "path, as one of its processes sees it"},
        {"kind", "TEXT", "nccl, rccl, cudart, cuda, other"},
        {"version", "TEXT", "version of the library; NULL: not known"},
        {"attach_method", "TEXT", "session, multi, perf, entry_only, none"},
        {"probes", "INTEGER", "functions that are traced in it"},
        {"reason", "TEXT", "why it is not traced; NULL: it is"}},
       ", PRIMARY KEY (device, inode, generation)) WITHOUT ROWID",
       ""},
      {"communicators",
       "communicators of the recorded calls, one row for each rank on this node",
       {{"pid", "INTEGER NOT NULL", kPid},
        {"process_start_ns", "INTEGER NOT NULL", kProcessStart},
        {"comm", "TEXT NOT NULL", kComm},
        {"comm_id_hash", "TEXT NOT NULL", "hash of the unique id, see nccl_events; '': not known"},
        {"rank", "INTEGER", kRank},
        {"nranks", "INTEGER", kNranks},
        {"collectives", "INTEGER", "collectives that were enqueued on it, when last looked at"},
        {"created_ns", "INTEGER", "unix time in nanoseconds; NULL: made before the agent came"},
        {"parent", "TEXT", "handle of the communicator that it was split from"},
        {"function", "TEXT", "function that made it"},
        {"name", "TEXT", "name that the program gave it"},
        {"library_version", "TEXT", "version of the NCCL that made it"}},
       ", PRIMARY KEY (pid, process_start_ns, comm, comm_id_hash)) WITHOUT ROWID",
       ""},
      {"recording",
       "the recording itself: one row",
       {{"id", "INTEGER PRIMARY KEY CHECK (id = 1)", "1"},
        {"host", "TEXT", "name of the host: the node column when several files are queried"},
        {"kernel", "TEXT", "release of the kernel"},
        {"architecture", "TEXT", "machine, such as x86_64"},
        {"agent_version", "TEXT", "version of ingero that recorded"},
        {"attach_method", "TEXT", "how the probes were attached"},
        {"selection", "TEXT", "what the recording was limited to; NULL: nothing"},
        {"started_ns", "INTEGER", "unix time in nanoseconds"},
        {"updated_ns", "INTEGER",
         "unix time of the last write; the calls until then are in the "
         "file"},
        {"ended_ns", "INTEGER",
         "unix time; NULL: still going on, or ended without a word (killed)"},
        {"end_reason", "TEXT", "why it ended; NULL as ended_ns"},
        {"clock", "TEXT", "where timestamps come from"},
        {"clock_offset_ns", "INTEGER", "unix time minus the kernel's clock at the start"},
        {"clock_drift_ns", "INTEGER",
         "how far that offset has moved since: steps of the wall clock"},
        {"clock_uncertainty_ns", "INTEGER", "upper bound of the error of the last measurement"},
        {"nccl_calls", "INTEGER", "rows of nccl_events when last written"},
        {"cuda_calls", "INTEGER", "rows of cuda_events when last written"},
        {"wait_threshold_ns", "INTEGER",
         "shortest wait for a CPU that is recorded, in nanoseconds; NULL: none is"},
        {"off_cpu_threshold_ns", "INTEGER",
         "shortest off-CPU span that is recorded, in nanoseconds; NULL: none is"}},
       "",
       ""},
      {"clock_samples",
       "how the offset between the kernel's clock and unix time moved: a row when it did, and one "
       "a "
       "minute",
       {{"timestamp_ns", "INTEGER NOT NULL", "unix time of the measurement"},
        {"offset_ns", "INTEGER NOT NULL", "unix time minus the kernel's clock"},
        {"uncertainty_ns", "INTEGER NOT NULL", "upper bound of its error"}},
       "",
       ""},
      {"losses",
       "what could not be recorded, by reason; 0 is a measurement",
       {{"reason", "TEXT PRIMARY KEY", "short name"},
        {"count", "INTEGER NOT NULL", "how often"},
        {"meaning", "TEXT", "what was lost"}},
       ") WITHOUT ROWID",
       ""},
      {"nccl_calls",
       "storage of nccl_events: what differs from call to call",
       {{"timestamp_ns", "INTEGER NOT NULL", kTimestamp},
        {"duration_ns", "INTEGER NOT NULL", kDuration},
        {"context_id", "INTEGER NOT NULL", "row of nccl_contexts"},
        {"count", "INTEGER", kCount},
        {"bytes", "INTEGER", kNcclBytes},
        {"sequence", "INTEGER", kSequence},
        {"result", "INTEGER NOT NULL", kNcclResult},
        {"group_end_ns", "INTEGER", kGroupEnd}},
       "",
       ""},
      {"nccl_contexts",
       "storage of nccl_events: what repeats from call to call",
       {{"id", "INTEGER PRIMARY KEY", "number of the context"},
        {"op", "TEXT NOT NULL", kNcclOp},
        {"function", "TEXT NOT NULL", kFunction},
        {"rank", "INTEGER", kRank},
        {"nranks", "INTEGER", kNranks},
        {"comm", "TEXT", kComm},
        {"comm_id_hash", "TEXT", kCommHash},
        {"datatype", "TEXT", kDatatype},
        {"reduce_op", "TEXT", kReduceOp},
        {"peer", "INTEGER", kPeer},
        {"root", "INTEGER", kRoot},
        {"stream", "TEXT", kStream},
        {"group_depth", "INTEGER NOT NULL", kGroupDepth},
        {"pid", "INTEGER NOT NULL", kPid},
        {"tid", "INTEGER NOT NULL", kTid},
        {"process_start_ns", "INTEGER NOT NULL", kProcessStart},
        {"cgroup_id", "INTEGER", kCgroup}},
       "",
       ""},
      {"cuda_calls",
       "storage of cuda_events: what differs from call to call",
       {{"timestamp_ns", "INTEGER NOT NULL", kTimestamp},
        {"duration_ns", "INTEGER NOT NULL", kDuration},
        {"context_id", "INTEGER NOT NULL", "row of cuda_contexts"},
        {"bytes", "INTEGER", "bytes copied; NULL: not a copy"},
        {"result", "INTEGER NOT NULL", kCudaResult}},
       "",
       ""},
      {"cuda_contexts",
       "storage of cuda_events: what repeats from call to call",
       {{"id", "INTEGER PRIMARY KEY", "number of the context"},
        {"op", "TEXT NOT NULL", "kind of call, see cuda_events"},
        {"function", "TEXT NOT NULL", kFunction},
        {"direction", "TEXT", kDirection},
        {"stream", "TEXT", kStream},
        {"pid", "INTEGER NOT NULL", kPid},
        {"tid", "INTEGER NOT NULL", kTid},
        {"process_start_ns", "INTEGER NOT NULL", kProcessStart},
        {"cgroup_id", "INTEGER", kCgroup}},
       "",
       ""},
      {"schema_comments",
       "what every table and column means; ingero query FILE --schema prints it",
       {{"table_name", "TEXT NOT NULL", "table or view"},
        {"column_name", "TEXT NOT NULL", "'': the table itself"},
        {"comment", "TEXT NOT NULL", "its meaning"}},
       ", PRIMARY KEY (table_name, column_name)) WITHOUT ROWID",
       ""},
  };
}

std::string create_sql(const SchemaTable& table) {
  if (table.is_view()) return fmt::format("CREATE VIEW {} AS {};\n", table.name, table.select);
  std::string sql = fmt::format("CREATE TABLE {} (", table.name);
  const char* separator = "";
  for (const SchemaColumn& column : table.columns) {
    sql += fmt::format("{}{} {}", separator, column.name, column.type);
    separator = ", ";
  }
  return fmt::format("{}{};\n", sql, table.keys.empty() ? ")" : table.keys);
}

std::string comment_sql(const SchemaTable& table) {
  const auto row = [&](std::string_view column, std::string_view comment) {
    return fmt::format("INSERT INTO schema_comments VALUES ({}, {}, {});\n", quoted(table.name),
                       quoted(column), quoted(comment));
  };
  std::string sql = row("", table.comment);
  for (const SchemaColumn& column : table.columns) sql += row(column.name, column.comment);
  return sql;
}

}  // namespace

std::span<const SchemaTable> schema() {
  static const std::vector<SchemaTable> tables = make_schema();
  return tables;
}

std::string schema_sql() {
  std::string sql = "BEGIN;\n";
  for (const SchemaTable& table : schema())
    if (!table.is_view()) sql += create_sql(table);
  for (const SchemaTable& table : schema())
    if (table.is_view()) sql += create_sql(table);
  // Joins by time look these up; nccl_calls is scanned in the order of time anyway. Those that begin with the
  // event: else SQLite takes a join that names it for one by the event, and compares all times.
  sql +=
      "CREATE INDEX tcp_events_time ON tcp_events (timestamp_ns);\n"
      "CREATE INDEX tcp_events_event_time ON tcp_events (event, timestamp_ns);\n"
      "CREATE INDEX sched_events_time ON sched_events (timestamp_ns);\n"
      "CREATE INDEX sched_events_event_time ON sched_events (event, timestamp_ns);\n";
  for (const SchemaTable& table : schema()) sql += comment_sql(table);
  return sql + fmt::format("PRAGMA application_id = {};\nPRAGMA user_version = {};\nCOMMIT;\n",
                           kApplicationId, kSchemaVersion);
}

}  // namespace ingero::record
