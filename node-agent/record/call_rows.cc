// SPDX-License-Identifier: Apache-2.0
#include "record/call_rows.h"

#include <fmt/format.h>

#include "model/functions.h"

namespace ingero::record {
namespace {

// A program that uses a new stream for each call makes a context for each call. What is forgotten here is
// written once more, which costs room in the file and nothing else.
constexpr std::size_t kMaxContexts = 1 << 17;
constexpr std::size_t kMaxProcesses = 1 << 16;

constexpr std::string_view kNcclCall = "INSERT INTO nccl_calls VALUES (?, ?, ?, ?, ?, ?, ?, NULL)";
constexpr std::string_view kGroupEnd = "UPDATE nccl_calls SET group_end_ns = ? WHERE rowid = ?";
constexpr std::string_view kNcclContext =
    "INSERT INTO nccl_contexts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
constexpr std::string_view kCudaCall = "INSERT INTO cuda_calls VALUES (?, ?, ?, ?, ?)";
constexpr std::string_view kCudaContext =
    "INSERT INTO cuda_contexts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)";
constexpr std::string_view kCommunicator =
    "INSERT INTO communicators (pid, process_start_ns, comm, comm_id_hash, rank, nranks) "
    "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET rank = COALESCE(excluded.rank, rank), "
    "nranks = COALESCE(excluded.nranks, nranks)";

std::uint64_t pair(std::uint32_t high, std::uint32_t low) {
  return (std::uint64_t{high} << 32) | low;
}

std::optional<std::string> pointer_text(std::uint64_t value, bool known) {
  if (!known) return std::nullopt;
  return fmt::format("{:#x}", value);
}

std::optional<std::uint64_t> if_known(std::uint64_t value, bool known) {
  if (!known) return std::nullopt;
  return value;
}

std::optional<std::int64_t> rank_of(const call_event& event) {
  if (event.rank < 0) return std::nullopt;
  return event.rank;
}

struct Names {
  std::string_view op = "UNKNOWN";
  std::string function;
};

Names names_of(const call_event& event, const model::ApiFunction* function) {
  if (function == nullptr) return {"UNKNOWN", fmt::format("function_{}", event.function)};
  return {model::op_name(*function), std::string(function->symbol)};
}

bool is_nccl(const model::ApiFunction* function) {
  return function == nullptr || function->source == API_SOURCE_NCCL;
}

bool is_collective(const model::ApiFunction* function) {
  return function != nullptr && function->family == API_NCCL_COLLECTIVE;
}

bool is_point_to_point(std::string_view op) { return op == "SEND" || op == "RECV"; }

}  // namespace

std::size_t CallRows::ContextHash::operator()(const ContextKey& key) const {
  std::uint64_t hash = 0;
  for (const std::uint64_t word : key) {
    hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
    hash ^= hash >> 32;
  }
  return static_cast<std::size_t>(hash);
}

Result<CallRows> CallRows::create(sqlite3* database) {
  auto nccl_call = Statement::create(database, kNcclCall);
  auto nccl_context = Statement::create(database, kNcclContext);
  auto cuda_call = Statement::create(database, kCudaCall);
  auto cuda_context = Statement::create(database, kCudaContext);
  auto communicator = Statement::create(database, kCommunicator);
  auto group_end = Statement::create(database, kGroupEnd);
  for (const auto* statement :
       {&nccl_call, &nccl_context, &cuda_call, &cuda_context, &communicator, &group_end})
    if (!*statement) return fail(statement->error());
  return CallRows(database, std::move(*nccl_call), std::move(*nccl_context), std::move(*cuda_call),
                  std::move(*cuda_context), std::move(*communicator), std::move(*group_end));
}

int CallRows::write(const RecordedCall& call) {
  return is_nccl(model::find_api_function(call.event.function)) ? write_nccl(call)
                                                                : write_cuda(call);
}

int CallRows::write_nccl(const RecordedCall& call) {
  const call_event& event = call.event;
  const ContextKey key{event.header.process_start_ns,
                       pair(event.header.tgid, event.header.tid),
                       event.header.cgroup_id,
                       event.comm,
                       event.comm_id_hash,
                       event.stream,
                       pair(static_cast<std::uint32_t>(event.rank), event.nranks),
                       pair(static_cast<std::uint32_t>(event.peer), event.redop),
                       (std::uint64_t{event.function} << 32) |
                           (std::uint64_t{event.datatype} << 8) | event.group_depth};
  if (nccl_contexts_.size() >= kMaxContexts) nccl_contexts_.clear();
  const auto [context, added] = nccl_contexts_.try_emplace(key, last_context_ + 1);
  if (added) {
    if (const int code = new_nccl_context(event, ++last_context_); code != SQLITE_DONE) return code;
  }
  const bool sized = is_collective(model::find_api_function(event.function));
  ++nccl_calls_;
  const int code = nccl_call_.bind(call.unix_ns)
                       .bind(event.duration_ns)
                       .bind(context->second)
                       .bind(if_known(event.count, sized))
                       .bind(if_known(event.bytes, sized))
                       .bind(if_known(event.sequence, event.sequence != 0))
                       .bind(event.result)
                       .run();
  return code == SQLITE_DONE ? follow_group(call) : code;
}

/// What was called inside a group gets the time of its end.
int CallRows::follow_group(const RecordedCall& call) {
  const call_event& event = call.event;
  const auto* function = model::find_api_function(event.function);
  if (function == nullptr) return SQLITE_DONE;
  const std::string_view op = model::op_name(*function);
  if (op == "GROUP_START") return SQLITE_DONE;
  if (op != "GROUP_END") {
    if (event.group_depth != 0) open_groups_.add(event, sqlite3_last_insert_rowid(database_));
    return SQLITE_DONE;
  }
  if (event.group_depth != 0) return SQLITE_DONE;  // an inner one
  const auto end_ns = call.unix_ns + static_cast<std::int64_t>(event.duration_ns);
  for (const std::int64_t row : open_groups_.end(event))
    if (const int code = group_end_.bind(end_ns).bind(row).run(); code != SQLITE_DONE) return code;
  return SQLITE_DONE;
}

int CallRows::new_nccl_context(const call_event& event, std::int64_t id) {
  note_process(event);
  const model::ApiFunction* function = model::find_api_function(event.function);
  const model::ApiShape shape =
      function != nullptr ? model::decode_cookie(function->cookie) : model::ApiShape{};
  const Names names = names_of(event, function);
  const bool has_peer = shape.peer != 0;
  const bool to_peer = is_point_to_point(names.op);
  const auto peer = static_cast<std::int64_t>(event.peer);
  const auto comm = pointer_text(event.comm, event.comm != 0);
  const std::string hash =
      event.comm_id_hash != 0 ? fmt::format("{:016x}", event.comm_id_hash) : std::string();
  const auto nranks = if_known(event.nranks, event.nranks != 0);
  if (comm && is_collective(function)) {
    const int code = communicator_.bind(event.header.tgid)
                         .bind(event.header.process_start_ns)
                         .bind(std::string_view(*comm))
                         .bind(std::string_view(hash))
                         .bind(rank_of(event))
                         .bind(nranks)
                         .run();
    if (code != SQLITE_DONE) return code;
  }
  nccl_context_.bind(id).bind(names.op).bind(std::string_view(names.function));
  nccl_context_.bind(rank_of(event)).bind(nranks).bind(comm);
  if (hash.empty()) nccl_context_.bind_null();
  else nccl_context_.bind(std::string_view(hash));
  if (is_collective(function)) nccl_context_.bind(model::nccl_datatype_name(event.datatype));
  else nccl_context_.bind_null();
  if (shape.redop != 0) nccl_context_.bind(model::nccl_redop_name(event.redop));
  else nccl_context_.bind_null();
  if (has_peer && to_peer) nccl_context_.bind(peer).bind_null();
  else if (has_peer) nccl_context_.bind_null().bind(peer);
  else nccl_context_.bind_null().bind_null();
  return nccl_context_.bind(pointer_text(event.stream, shape.stream != 0))
      .bind(std::uint32_t{event.group_depth})
      .bind(event.header.tgid)
      .bind(event.header.tid)
      .bind(event.header.process_start_ns)
      .bind(event.header.cgroup_id)
      .run();
}

int CallRows::write_cuda(const RecordedCall& call) {
  const call_event& event = call.event;
  const ContextKey key{event.header.process_start_ns, pair(event.header.tgid, event.header.tid),
                       event.header.cgroup_id, event.stream, pair(event.function, event.direction)};
  if (cuda_contexts_.size() >= kMaxContexts) cuda_contexts_.clear();
  const auto [context, added] = cuda_contexts_.try_emplace(key, last_context_ + 1);
  if (added) {
    if (const int code = new_cuda_context(event, ++last_context_); code != SQLITE_DONE) return code;
  }
  const auto* function = model::find_api_function(event.function);
  ++cuda_calls_;
  return cuda_call_.bind(call.unix_ns)
      .bind(event.duration_ns)
      .bind(context->second)
      .bind(if_known(event.bytes, function->family == API_CUDA_COPY))
      .bind(event.result)
      .run();
}

int CallRows::new_cuda_context(const call_event& event, std::int64_t id) {
  note_process(event);
  const model::ApiFunction* function = model::find_api_function(event.function);
  const Names names = names_of(event, function);
  const bool has_stream = model::decode_cookie(function->cookie).stream != 0;
  cuda_context_.bind(id).bind(names.op).bind(std::string_view(names.function));
  if (function->family == API_CUDA_COPY)
    cuda_context_.bind(model::direction_label(event.direction));
  else cuda_context_.bind_null();
  return cuda_context_.bind(pointer_text(event.stream, has_stream))
      .bind(event.header.tgid)
      .bind(event.header.tid)
      .bind(event.header.process_start_ns)
      .bind(event.header.cgroup_id)
      .run();
}

void CallRows::note_process(const call_event& event) {
  if (processes_.size() >= kMaxProcesses) processes_.clear();
  const model::ProcessKey process{event.header.tgid, event.header.process_start_ns};
  if (processes_.insert(process).second) new_processes_.emplace(process, event.header.cgroup_id);
  note_cgroup(event.header.cgroup_id);
}

void CallRows::note_cgroup(std::uint64_t cgroup_id) {
  if (cgroups_.size() < kMaxProcesses) cgroups_.insert(cgroup_id);
}

}  // namespace ingero::record
