// SPDX-License-Identifier: Apache-2.0
#include "record/call_scan.h"

#include <fmt/format.h>

#include <algorithm>

namespace ingero::record {
namespace {

constexpr std::int64_t kMaxTime = std::int64_t{1} << 61;
constexpr std::size_t kMaxContexts = 1 << 20;
constexpr std::size_t kMaxText = 200;

CallContext context_of(const Statement& row, std::size_t node) {
  CallContext context;
  context.node = node;
  context.op = bounded_text(row, 1);
  context.function = bounded_text(row, 2);
  context.comm_id_hash = bounded_text(row, 3);
  context.direction = bounded_text(row, 4);
  if (!row.is_null(5)) context.rank = static_cast<std::int32_t>(row.integer(5));
  if (!row.is_null(6)) context.nranks = row.integer(6);
  context.pid = row.integer(7);
  context.tid = row.integer(8);
  context.process_start_ns = row.integer(9);
  context.cgroup_id = row.integer(10);
  return context;
}

}  // namespace

std::int64_t bounded_time(std::int64_t value) {
  return std::clamp<std::int64_t>(value, 0, kMaxTime);
}

std::string bounded_text(const Statement& row, int column) {
  std::string text = row.text(column);
  if (text.size() > kMaxText) text.resize(kMaxText);
  return text;
}

Result<CallScan> CallScan::create(const Recording& recording, CallTable table) {
  CallScan scan(recording.database(), table);
  for (std::size_t i = 0; i < recording.nodes().size(); ++i)
    if (auto status = scan.add(recording.nodes()[i], i); !status) return fail(status.error());
  for (std::size_t i = 0; i < scan.sources_.size(); ++i)
    if (auto status = scan.advance(i); !status) return fail(status.error());
  return scan;
}

Status CallScan::add(const Recording::Node& node, std::size_t index) {
  const bool nccl = table_ == CallTable::kNccl;
  // Files of older versions have no ends of groups.
  const auto has_groups = query_integer(
      database_, fmt::format("SELECT COUNT(*) FROM pragma_table_info('nccl_calls', '{}') "
                             "WHERE name = 'group_end_ns'",
                             node.schema));
  if (!has_groups) return fail(has_groups.error());
  auto contexts = Statement::create(
      database_,
      fmt::format("SELECT id, op, function, {}, pid, tid, process_start_ns, cgroup_id "
                  "FROM {}.{}_contexts",
                  nccl ? "comm_id_hash, NULL, rank, nranks" : "NULL, direction, NULL, NULL",
                  node.schema, nccl ? "nccl" : "cuda"));
  if (!contexts) return fail(contexts.error());
  Contexts& known = contexts_.emplace_back();
  int code = SQLITE_DONE;
  while ((code = contexts->step()) == SQLITE_ROW && known.size() < kMaxContexts)
    if (const auto [at, added] = known.emplace(contexts->integer(0), context_of(*contexts, index));
        added)
      at->second.index = context_count_++;
  if (code != SQLITE_DONE && code != SQLITE_ROW)
    return fail(database_error(database_, "read contexts", node.path));
  auto rows = Statement::create(
      database_, fmt::format("SELECT timestamp_ns, duration_ns, context_id, bytes, result{} FROM "
                             "{}.{}_calls ORDER BY rowid",
                             !nccl              ? ""
                             : *has_groups != 0 ? ", sequence, group_end_ns"
                                                : ", sequence, NULL",
                             node.schema, nccl ? "nccl" : "cuda"));
  if (!rows) return fail(rows.error());
  sources_.push_back({std::move(*rows), {}, code == SQLITE_DONE, false});
  return {};
}

Status CallScan::advance(std::size_t index) {
  Source& source = sources_[index];
  int code = SQLITE_DONE;
  while ((code = source.rows.step()) == SQLITE_ROW) {
    const auto context = contexts_[index].find(source.rows.integer(2));
    if (context == contexts_[index].end()) {
      ++(source.has_all_contexts ? damaged_ : left_out_);
      continue;
    }
    source.head.context = &context->second;
    source.head.unix_ns = bounded_time(source.rows.integer(0));
    source.head.duration_ns = bounded_time(source.rows.integer(1));
    source.head.bytes.reset();
    if (!source.rows.is_null(3)) source.head.bytes = bounded_time(source.rows.integer(3));
    source.head.result = source.rows.integer(4);
    source.head.span_ns = source.head.duration_ns;
    if (table_ == CallTable::kNccl) {
      source.head.sequence = source.rows.integer(5);
      if (!source.rows.is_null(6))
        source.head.span_ns =
            bounded_time(bounded_time(source.rows.integer(6)) - source.head.unix_ns);
    }
    return {};
  }
  source.ended = true;
  if (code == SQLITE_DONE) return {};
  return fail(database_error(database_, "read calls", ""));
}

Result<bool> CallScan::next(ScannedCall& call) {
  std::size_t first = sources_.size();
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    if (sources_[i].ended) continue;
    if (first == sources_.size() || sources_[i].head.unix_ns < sources_[first].head.unix_ns)
      first = i;
  }
  if (first == sources_.size()) return false;
  call = sources_[first].head;
  if (auto status = advance(first); !status) return fail(status.error());
  return true;
}

}  // namespace ingero::record
