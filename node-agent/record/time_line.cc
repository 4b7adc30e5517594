// SPDX-License-Identifier: Apache-2.0
// Format: "Trace Event Format" (JSON object form). Times are microseconds since the recording's start.
#include "record/time_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "record/call_scan.h"
#include "record/collective_matcher.h"

namespace ingero::record {
namespace {

constexpr std::int64_t kPidsPerNode = 5'000'000;  // more than a kernel gives
constexpr std::int64_t kCommunicatorPids = 1'000'000'000;
constexpr std::int64_t kNoRank = std::int64_t{1} << 31;  // behind all ranks
constexpr std::int64_t kNetworkPids = 2'000'000'000;
constexpr std::uint64_t kCallsBetweenWatches = 1 << 14;

std::string text(std::string_view value) { return fmt::format("\"{}\"", escape_json(value)); }

class TimeLine {
 public:
  TimeLine(const Recording& recording, const std::function<bool(std::string_view)>& write,
           const Watch& watch)
      : recording_(recording), write_(write), watch_(recording, watch) {}

  Status run() {
    if (auto status = read_start(); !status) return status;
    put("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[");
    if (auto status = name_processes(); !status) return status;
    for (const CallTable table : {CallTable::kNccl, CallTable::kCuda})
      if (auto status = write_calls(table); !status) return status;
    for (std::size_t i = 0; i < recording_.nodes().size(); ++i) {
      if (auto status = write_segments(i); !status) return status;
      if (auto status = write_spans(i); !status) return status;
    }
    put(fmt::format("\n],\"otherData\":{{\"start_unix_ns\":\"{}\"}}}}\n", start_ns_));
    return open_ ? Status{} : fail({"write time line", "", "nobody reads it", ""});
  }

 private:
  void put(std::string_view part) { open_ = open_ && write_(part); }

  void event(const std::string& fields) {
    put(fmt::format("{}\n{{{}}}", first_ ? "" : ",", fields));
    first_ = false;
  }

  std::string time(std::int64_t unix_ns) const { return microseconds(unix_ns - start_ns_); }
  static std::string microseconds(std::int64_t ns) {
    const std::int64_t size = ns < 0 ? -ns : ns;
    return fmt::format("{}{}.{:03}", ns < 0 ? "-" : "", size / 1000, size % 1000);
  }
  /// Also of threads: a viewer takes the thread with its process's number for the main one.
  static std::int64_t pid_of(std::size_t node, std::int64_t pid) {
    return static_cast<std::int64_t>(node) * kPidsPerNode +
           std::clamp<std::int64_t>(pid, 0, kPidsPerNode - 1);
  }

  Status read_start() {
    for (const Recording::Node& node : recording_.nodes()) {
      const auto started = query_integer(
          recording_.database(), fmt::format("SELECT started_ns FROM {}.recording", node.schema));
      if (!started) return fail(started.error());
      const std::int64_t from = bounded_time(*started);
      start_ns_ = start_ns_ == 0 ? from : std::min(start_ns_, from);
    }
    return {};
  }

  void name_process(std::int64_t pid, std::string_view name) {
    event(fmt::format("\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{},\"args\":{{\"name\":{}}}",
                      pid, text(name)));
  }
  void name_thread(std::int64_t pid, std::int64_t tid, std::string_view name) {
    event(fmt::format(
        "\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":{},\"tid\":{},\"args\":{{\"name\":{}}}", pid,
        tid, text(name)));
  }

  Status name_processes() {
    for (std::size_t i = 0; i < recording_.nodes().size(); ++i) {
      const Recording::Node& node = recording_.nodes()[i];
      auto rows = Statement::create(
          recording_.database(),
          fmt::format("SELECT p.pid, COALESCE(p.command, 'process'), k.pod FROM {0}.processes p "
                      "LEFT JOIN {0}.containers k ON k.cgroup_id = p.cgroup_id LIMIT 100000",
                      node.schema));
      if (!rows) return fail(rows.error());
      int code = SQLITE_DONE;
      while ((code = rows->step()) == SQLITE_ROW)
        name_process(
            pid_of(i, rows->integer(0)),
            fmt::format("{}{}{} {} ({})", bounded_text(*rows, 2), rows->is_null(2) ? "" : " ",
                        bounded_text(*rows, 1), rows->integer(0), node.name));
      if (code != SQLITE_DONE)
        return fail(database_error(recording_.database(), "read processes", node.path));
    }
    return {};
  }

  static std::string arguments(const ScannedCall& call) {
    const CallContext& context = *call.context;
    std::string list =
        fmt::format("\"function\":{},\"result\":{}", text(context.function), call.result);
    if (call.bytes) list += fmt::format(",\"bytes\":{}", *call.bytes);
    if (call.sequence > 0) list += fmt::format(",\"sequence\":{}", call.sequence);
    if (context.rank) list += fmt::format(",\"rank\":{}", *context.rank);
    if (context.nranks) list += fmt::format(",\"nranks\":{}", *context.nranks);
    if (!context.comm_id_hash.empty())
      list += fmt::format(",\"comm_id_hash\":{}", text(context.comm_id_hash));
    if (!context.direction.empty())
      list += fmt::format(",\"direction\":{}", text(context.direction));
    return list;
  }

  void slice(const ScannedCall& call, std::int64_t length_ns, std::string_view name,
             std::int64_t pid, std::int64_t tid, std::string_view category) {
    event(
        fmt::format("\"ph\":\"X\",\"name\":{},\"cat\":\"{}\",\"pid\":{},\"tid\":{},\"ts\":{},"
                    "\"dur\":{},\"args\":{{{}}}",
                    text(name), category, pid, tid, time(call.unix_ns), microseconds(length_ns),
                    arguments(call)));
  }

  /// The communicator's own track, a line for each rank.
  void on_communicator(const ScannedCall& call) {
    const CallContext& context = *call.context;
    if (call.sequence <= 0 || context.comm_id_hash.empty()) return;
    const auto [known, added] = communicators_.try_emplace(
        context.comm_id_hash, kCommunicatorPids + static_cast<std::int64_t>(communicators_.size()));
    const std::int64_t pid = known->second;
    const std::int64_t rank = context.rank.value_or(-1) < 0 ? kNoRank : *context.rank;
    if (added) name_process(pid, "communicator " + context.comm_id_hash);
    if (ranks_.insert({pid, rank}).second)
      name_thread(pid, rank, rank == kNoRank ? "rank not known" : fmt::format("rank {}", rank));
    slice(call, call.span_ns, fmt::format("{} #{}", context.op, call.sequence), pid, rank,
          "communicator");
  }

  /// From the rank that called first through to the one that called last.
  void flow(const MatchedCollective& match) {
    std::vector<const ScannedCall*> calls;
    for (const ScannedCall& call : match.calls) calls.push_back(&call);
    std::sort(calls.begin(), calls.end(),
              [](const ScannedCall* a, const ScannedCall* b) { return a->unix_ns < b->unix_ns; });
    const std::uint64_t id = ++flows_;
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const ScannedCall& call = *calls[i];
      const std::string_view phase = i == 0 ? "s" : i + 1 == calls.size() ? "f" : "t";
      event(
          fmt::format("\"ph\":\"{}\",\"bp\":\"e\",\"name\":\"collective\",\"cat\":\"ranks\","
                      "\"id\":{},\"pid\":{},\"tid\":{},\"ts\":{}",
                      phase, id, pid_of(call.context->node, call.context->pid),
                      pid_of(call.context->node, call.context->tid), time(call.unix_ns)));
    }
  }

  Status write_calls(CallTable table) {
    auto scan = CallScan::create(recording_, table);
    if (!scan) return fail(scan.error());
    CollectiveMatcher matcher(*scan, [this](const MatchedCollective& match) { flow(match); });
    ScannedCall call;
    std::uint64_t calls = 0;
    while (open_) {
      auto more = scan->next(call);
      if (!more) return fail(more.error());
      if (!*more) break;
      if (++calls % kCallsBetweenWatches == 0 && watch_.ask(calls))
        return fail({"write time line", "", "interrupted", ""});
      const CallContext& context = *call.context;
      slice(call, call.duration_ns, context.op, pid_of(context.node, context.pid),
            pid_of(context.node, context.tid), table == CallTable::kNccl ? "nccl" : "cuda");
      if (table == CallTable::kCuda) continue;
      on_communicator(call);
      matcher.add(call);
    }
    return {};
  }

  /// Calls `take` with each row of `select`, in which {} is the file.
  template <typename Take>
  Status for_each_row(const Recording::Node& node, const char* select, Take take) {
    auto rows =
        Statement::create(recording_.database(), fmt::format(fmt::runtime(select), node.schema));
    if (!rows) return fail(rows.error());
    int code = SQLITE_DONE;
    while (open_ && (code = rows->step()) == SQLITE_ROW) take(*rows);
    if (code == SQLITE_DONE || code == SQLITE_ROW) return {};
    return fail(database_error(recording_.database(), "read events", node.path));
  }

  /// A segment belongs to no thread: the node's network has a track, with a line for each cgroup.
  Status write_segments(std::size_t index) {
    const Recording::Node& node = recording_.nodes()[index];
    const std::int64_t pid = kNetworkPids + static_cast<std::int64_t>(index);
    std::map<std::int64_t, std::int64_t> lines;
    return for_each_row(
        node,
        "SELECT t.timestamp_ns, t.event, t.saddr, t.sport, t.daddr, t.dport, t.state, "
        "COALESCE(t.cgroup_id, 0), COALESCE(k.pod, k.container, 'not known') "
        "FROM {0}.tcp_events t LEFT JOIN {0}.containers k ON k.cgroup_id = t.cgroup_id",
        [&](const Statement& row) {
          const auto [line, added] =
              lines.try_emplace(row.integer(7), static_cast<std::int64_t>(lines.size() + 1));
          if (lines.size() == 1 && added) name_process(pid, "TCP (" + node.name + ")");
          if (added) name_thread(pid, line->second, bounded_text(row, 8));
          event(fmt::format(
              "\"ph\":\"i\",\"s\":\"t\",\"name\":{},\"cat\":\"kernel\",\"pid\":{},\"tid\":{},"
              "\"ts\":{},\"args\":{{\"saddr\":{},\"sport\":{},\"daddr\":{},\"dport\":{},\"state\":{"
              "}}}",
              text(bounded_text(row, 1)), pid, line->second, time(bounded_time(row.integer(0))),
              text(bounded_text(row, 2)), row.integer(3), text(bounded_text(row, 4)),
              row.integer(5), text(bounded_text(row, 6))));
        });
  }

  /// A thread does not run while it waits: its spans lie in its calls or between them, never across an end.
  Status write_spans(std::size_t index) {
    return for_each_row(
        recording_.nodes()[index],
        "SELECT timestamp_ns, duration_ns, event, cpu, pid, tid FROM {}.sched_events",
        [&](const Statement& row) {
          event(fmt::format(
              "\"ph\":\"X\",\"name\":{},\"cat\":\"kernel\",\"pid\":{},\"tid\":{},\"ts\":{},"
              "\"dur\":{},\"args\":{{\"cpu\":{}}}",
              text(bounded_text(row, 2)), pid_of(index, row.integer(4)),
              pid_of(index, row.integer(5)), time(bounded_time(row.integer(0))),
              microseconds(bounded_time(row.integer(1))), row.integer(3)));
        });
  }

  const Recording& recording_;
  const std::function<bool(std::string_view)>& write_;
  ReadWatch watch_;
  std::int64_t start_ns_ = 0;
  bool first_ = true, open_ = true;
  std::map<std::string, std::int64_t> communicators_;
  std::set<std::pair<std::int64_t, std::int64_t>> ranks_;
  std::uint64_t flows_ = 0;
};

}  // namespace

Status export_time_line(const Recording& recording,
                        const std::function<bool(std::string_view)>& write, const Watch& watch) {
  return TimeLine(recording, write, watch).run();
}

}  // namespace ingero::record
