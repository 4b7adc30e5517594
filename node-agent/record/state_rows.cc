// SPDX-License-Identifier: Apache-2.0
#include "record/state_rows.h"

#include <fmt/format.h>

#include "model/functions.h"

namespace ingero::record {
namespace {

enum Which { kProcess, kContainer, kLibrary, kComm, kClock, kLoss, kProgress, kEnd };

constexpr std::int64_t kSampleInterval = 60'000'000'000;
constexpr std::int64_t kClockMoved = 50'000;  // above what measuring it twice differs by

constexpr std::string_view kSql[] = {
    "INSERT INTO processes VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
    "command = COALESCE(excluded.command, command), "
    "cgroup_id = COALESCE(cgroup_id, excluded.cgroup_id)",
    "INSERT OR REPLACE INTO containers VALUES (?, ?, ?, ?)",
    "INSERT OR REPLACE INTO libraries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
    "INSERT INTO communicators VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE "
    "SET rank = COALESCE(excluded.rank, rank), nranks = COALESCE(excluded.nranks, nranks), "
    "collectives = excluded.collectives, created_ns = excluded.created_ns, "
    "parent = excluded.parent, function = excluded.function, name = excluded.name, "
    "library_version = excluded.library_version",
    "INSERT INTO clock_samples VALUES (?, ?, ?)",
    "INSERT OR REPLACE INTO losses VALUES (?, ?, ?)",
    "UPDATE recording SET updated_ns = ?, nccl_calls = ?, cuda_calls = ?, clock_drift_ns = ?, "
    "clock_uncertainty_ns = ?",
    "UPDATE recording SET ended_ns = ?, end_reason = ?",
};

constexpr std::pair<std::string_view, std::string_view> kMeanings[] = {
    {kWriterBehind, "calls that found the queue in front of the writer full"},
    {kDiskFull, "calls that came when the disk was full"},
    {kBudgetReached, "calls that came when the file had reached its size limit"},
    {kFileRemoved, "calls that came when the file was removed or replaced"},
    {kWriteError, "calls that could not be written for another reason"},
    {"host_event_stream_full",
     "retransmissions, waits and off-CPU spans that found that ring buffer full, on this host"},
    {kEventsLost, "rows of tcp_events and sched_events that were not written, for any reason"},
    {"call_stream_full",
     "calls that found the ring buffer between kernel and agent full, on this "
     "host"},
};

std::string_view meaning_of(std::string_view reason) {
  for (const auto& [name, meaning] : kMeanings)
    if (name == reason) return meaning;
  return "counted by the agent on this host, see ingero_events_lost_total in docs/metrics.md";
}

std::optional<std::string_view> if_any(const std::string& text) {
  if (text.empty()) return std::nullopt;
  return text;
}

template <typename Number>
std::optional<std::int64_t> if_not(Number none, Number value) {
  if (value == none) return std::nullopt;
  return static_cast<std::int64_t>(value);
}

}  // namespace

Result<StateRows> StateRows::create(sqlite3* database, const Clock& clock, ContainerOf container_of,
                                    CommandOf command_of) {
  StateRows rows(database, clock);
  static_assert(std::size(kSql) == kStatements);
  for (std::size_t i = 0; i < kStatements; ++i) {
    auto statement = Statement::create(database, kSql[i]);
    if (!statement) return fail(statement.error());
    rows.statements_[i].emplace(std::move(*statement));
  }
  rows.container_of_ = std::move(container_of);
  rows.command_of_ = std::move(command_of);
  return rows;
}

std::int64_t StateRows::now() const {
  return static_cast<std::int64_t>(
      clock_->unix_from_monotonic(system_clock_source().monotonic_ns()));
}

std::int64_t StateRows::offset() const {
  constexpr std::uint64_t kAnyTime = std::uint64_t{1} << 61;
  return static_cast<std::int64_t>(clock_->unix_from_monotonic(kAnyTime) - kAnyTime);
}

Status StateRows::begin(const RecordingFacts& facts) {
  auto insert = Statement::create(
      database_,
      "INSERT INTO recording (id, host, kernel, architecture, agent_version, attach_method, "
      "selection, started_ns, clock, clock_offset_ns, wait_threshold_ns, off_cpu_threshold_ns) "
      "VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
  if (!insert) return fail(insert.error());
  first_offset_ = offset();
  const int code = insert->bind(std::string_view(facts.host))
                       .bind(std::string_view(facts.kernel))
                       .bind(std::string_view(facts.architecture))
                       .bind(std::string_view(facts.agent_version))
                       .bind(std::string_view(facts.attach_method))
                       .bind(if_any(facts.selection))
                       .bind(now())
                       .bind(std::string_view("CLOCK_MONOTONIC plus its offset to CLOCK_REALTIME"))
                       .bind(first_offset_)
                       .bind(if_not(std::int64_t{0}, facts.wait_threshold_ns))
                       .bind(if_not(std::int64_t{0}, facts.off_cpu_threshold_ns))
                       .run();
  if (code != SQLITE_DONE)
    return fail(database_error(database_, "write the head of the recording", ""));
  std::map<std::string, std::uint64_t> none;
  for (const std::string_view reason : kRecorderLosses) none[std::string(reason)] = 0;
  if (write_losses(none) != SQLITE_DONE || write_clock() != SQLITE_DONE)
    return fail(database_error(database_, "write the head of the recording", ""));
  return {};
}

int StateRows::write(const model::Snapshot& snapshot,
                     const std::unordered_set<std::uint64_t>& cgroups) {
  int code = write_clock();
  std::unordered_set<std::uint64_t> wanted = cgroups;
  for (const model::Process& process : snapshot.processes) {
    if (code == SQLITE_DONE) code = write_process_row(process);
    wanted.insert(to_number(process.cgroup));
  }
  for (const std::uint64_t cgroup : wanted)
    if (code == SQLITE_DONE) code = write_container(cgroup);
  for (const model::Library& library : snapshot.libraries)
    if (code == SQLITE_DONE) code = write_library(library);
  for (const model::Communicator& communicator : snapshot.communicators)
    if (code == SQLITE_DONE) code = write_communicator(communicator);
  return code;
}

int StateRows::write_process(const model::ProcessKey& key, std::uint64_t cgroup) {
  const auto command = command_of_ ? command_of_(key) : std::nullopt;
  return statement(kProcess)
      .bind(key.tgid)
      .bind(key.start_ns)
      .bind(clock_->unix_from_boottime(key.start_ns))
      .bind(command)
      .bind(cgroup)
      .run();
}

int StateRows::write_process_row(const model::Process& process) {
  return statement(kProcess)
      .bind(process.key.tgid)
      .bind(process.key.start_ns)
      .bind(clock_->unix_from_boottime(process.key.start_ns))
      .bind(if_any(process.comm))
      .bind(to_number(process.cgroup))
      .run();
}

int StateRows::write_container(std::uint64_t cgroup) {
  const ContainerNames names = container_of_ ? container_of_(cgroup) : ContainerNames{};
  const auto known = containers_.find(cgroup);
  if (known != containers_.end()) {
    // Names come late; when the container has gone, the last ones that were known stay.
    const bool less = names.container.empty() || (names.pod.empty() && !known->second.pod.empty());
    if (less || known->second == names) return SQLITE_DONE;
  }
  containers_[cgroup] = names;
  return statement(kContainer)
      .bind(cgroup)
      .bind(if_any(names.k8s_namespace))
      .bind(if_any(names.pod))
      .bind(if_any(names.container))
      .run();
}

int StateRows::write_library(const model::Library& library) {
  return statement(kLibrary)
      .bind(library.file.device)
      .bind(library.file.inode)
      .bind(library.file.generation)
      .bind(std::string_view(library.path))
      .bind(model::to_string(library.kind))
      .bind(if_any(library.version))
      .bind(model::to_string(library.method))
      .bind(static_cast<std::uint64_t>(library.probes.size()))
      .bind(if_any(library.reason))
      .run();
}

int StateRows::write_communicator(const model::Communicator& communicator) {
  const model::ApiFunction* function = model::find_api_function(communicator.function);
  statement(kComm)
      .bind(communicator.process.tgid)
      .bind(communicator.process.start_ns)
      .bind(std::string_view(fmt::format("{:#x}", communicator.handle)))
      .bind(std::string_view(
          communicator.id_hash != 0 ? fmt::format("{:016x}", communicator.id_hash) : ""))
      .bind(if_not(-1, communicator.rank))
      .bind(if_not(0U, communicator.nranks))
      .bind(communicator.collectives)
      .bind(if_not(std::int64_t{0}, communicator.created_unix_ns));
  if (communicator.parent != 0)
    statement(kComm).bind(std::string_view(fmt::format("{:#x}", communicator.parent)));
  else statement(kComm).bind_null();
  if (function != nullptr) statement(kComm).bind(function->symbol);
  else statement(kComm).bind_null();
  return statement(kComm)
      .bind(if_any(communicator.name))
      .bind(if_any(communicator.library_version))
      .run();
}

int StateRows::write_clock() {
  const std::int64_t time = now(), moved = offset() - sampled_offset_;
  if (sampled_ns_ != 0 && time >= sampled_ns_ && time - sampled_ns_ < kSampleInterval &&
      moved < kClockMoved && moved > -kClockMoved)
    return SQLITE_DONE;
  sampled_ns_ = time;
  sampled_offset_ = offset();
  return statement(kClock).bind(time).bind(sampled_offset_).bind(clock_->uncertainty_ns()).run();
}

int StateRows::write_losses(const std::map<std::string, std::uint64_t>& losses) {
  for (const auto& [reason, count] : losses) {
    const auto [known, added] = written_losses_.try_emplace(reason, count);
    if (!added && known->second == count) continue;
    known->second = count;
    const int code =
        statement(kLoss).bind(std::string_view(reason)).bind(count).bind(meaning_of(reason)).run();
    if (code != SQLITE_DONE) return code;
  }
  return SQLITE_DONE;
}

int StateRows::write_progress(const std::map<std::string, std::uint64_t>& losses,
                              std::uint64_t nccl_calls, std::uint64_t cuda_calls) {
  if (const int code = write_losses(losses); code != SQLITE_DONE) return code;
  return statement(kProgress)
      .bind(now())
      .bind(nccl_calls)
      .bind(cuda_calls)
      .bind(offset() - first_offset_)
      .bind(clock_->uncertainty_ns())
      .run();
}

int StateRows::write_end(const std::string& reason,
                         const std::map<std::string, std::uint64_t>& losses,
                         std::uint64_t nccl_calls, std::uint64_t cuda_calls) {
  written_losses_.clear();  // a transaction that failed may have held the last ones
  const int code = write_progress(losses, nccl_calls, cuda_calls);
  if (code != SQLITE_DONE) return code;
  return statement(kEnd).bind(now()).bind(std::string_view(reason)).run();
}

}  // namespace ingero::record
