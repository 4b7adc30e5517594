// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "base/clock.h"
#include "model/snapshot.h"
#include "record/database.h"
#include "record/recorder.h"

namespace ingero::record {

// Why the recorder itself lost something.
inline constexpr std::string_view kWriterBehind = "writer_behind";
inline constexpr std::string_view kDiskFull = "disk_full";
inline constexpr std::string_view kBudgetReached = "budget_reached";
inline constexpr std::string_view kFileRemoved = "file_removed";
inline constexpr std::string_view kWriteError = "write_error";
inline constexpr std::string_view kEventsLost = "host_events_lost";
inline constexpr std::array kRecorderLosses = {kWriterBehind, kDiskFull,   kBudgetReached,
                                               kFileRemoved,  kWriteError, kEventsLost};

/// Writes what the agent knows beside the calls: processes, containers, libraries, communicators, the
/// recording itself. Each function returns SQLITE_DONE or SQLite's error code.
class StateRows {
 public:
  using ContainerOf = std::function<ContainerNames(std::uint64_t)>;
  using CommandOf = std::function<std::optional<std::string>(const model::ProcessKey&)>;

  static Result<StateRows> create(sqlite3* database, const Clock& clock, ContainerOf container_of,
                                  CommandOf command_of);

  Status begin(const RecordingFacts& facts);
  int write(const model::Snapshot& snapshot, const std::unordered_set<std::uint64_t>& cgroups);
  int write_process(const model::ProcessKey& process, std::uint64_t cgroup);
  int write_progress(const std::map<std::string, std::uint64_t>& losses, std::uint64_t nccl_calls,
                     std::uint64_t cuda_calls);
  int write_end(const std::string& reason, const std::map<std::string, std::uint64_t>& losses,
                std::uint64_t nccl_calls, std::uint64_t cuda_calls);

 private:
  StateRows(sqlite3* database, const Clock& clock) : database_(database), clock_(&clock) {}
  Statement& statement(std::size_t which) { return *statements_[which]; }
  int write_process_row(const model::Process& process);
  int write_container(std::uint64_t cgroup);
  int write_library(const model::Library& library);
  int write_communicator(const model::Communicator& communicator);
  int write_clock();
  int write_losses(const std::map<std::string, std::uint64_t>& losses);
  std::int64_t now() const;
  std::int64_t offset() const;

  static constexpr std::size_t kStatements = 8;
  sqlite3* database_;
  const Clock* clock_;
  ContainerOf container_of_;
  CommandOf command_of_;
  std::array<std::optional<Statement>, kStatements> statements_;
  std::unordered_map<std::uint64_t, ContainerNames> containers_;
  std::map<std::string, std::uint64_t> written_losses_;
  std::int64_t first_offset_ = 0;
  std::int64_t sampled_ns_ = 0, sampled_offset_ = 0;
};

}  // namespace ingero::record
