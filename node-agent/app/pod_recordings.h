// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "app/recording_budget.h"
#include "app/workloads.h"
#include "config/config.h"
#include "record/recording_store.h"
#include "record/rotating_recorder.h"

namespace ingero::app {

/// A recording of a pod, as it stands.
struct PodRecordingStatus {
  std::string k8s_namespace, pod, uid;
  std::vector<std::string> policies;                 ///< that ask for it
  std::string state;                                 ///< "Recording", "Ended" or "Refused"
  std::string message;                               ///< why it ended, or was refused
  std::int64_t started_unix_s = 0, ends_unix_s = 0;  ///< 0: it has not begun
  record::RotatingStatus files;
};

/// What all recordings of pods have counted since the agent started. Never goes back.
struct RecordingTotals {
  std::uint64_t calls = 0;  ///< recorded
  std::uint64_t lost = 0;   ///< calls; see record::RotatingStatus
};

/// Records the pods that policies ask for, each into files of its own, within the node's budget. Belongs to
/// the io_context's thread, but for what says otherwise.
///
/// A recording is for one pod (uid) and one request (see policy::RecordingWish). The files tell a restarted
/// agent how long it has been going on; it goes on with the next file.
class PodRecordings {
 public:
  /// What it needs to know of the agent, and to tell it.
  struct Sources {
    std::function<std::vector<CoveredContainer>()> containers;
    /// Streams the calls of these pods from now on; what was streamed before is handed over first.
    std::function<Status(std::set<std::string> uids)> record_pods;
    std::function<bool()> drain;  ///< hands over what is streamed; false: not all of it
    std::function<std::shared_ptr<const model::Snapshot>()> snapshot;
    std::function<record::RecorderOptions()> recorder;  ///< facts and names
  };

  PodRecordings(boost::asio::io_context& io, const Clock& clock, Sources sources,
                const config::RecordingsConfig& config);
  ~PodRecordings();

  void set_config(const config::RecordingsConfig& config);
  /// Policies or pods may have changed. From any thread.
  void look_soon();

  /// Returns whether another call would find room now.
  bool add(const call_event& call);
  void add(std::uint64_t cgroup, const record::TcpEvent& event);
  void add(const record::SchedEvent& event);

  /// From any thread.
  std::vector<PodRecordingStatus> status() const;
  /// From any thread.
  RecordingTotals totals() const;
  /// Ends all of them; the next agent goes on with them.
  void stop();

 private:
  struct Wanted {
    std::shared_ptr<const k8s::PodInfo> pod;
    policy::RecordingWish wish;
    std::set<model::CgroupId> cgroups;
  };
  struct Entry {
    PodRecordingStatus status;
    std::string request;
    std::set<model::CgroupId> cgroups;
    std::uint64_t max_bytes = 0;
    RecordingTotals counted;                             ///< what of it is in the totals
    std::vector<record::PodFile> earlier;                ///< files from before a restart
    std::unique_ptr<record::RotatingRecorder> recorder;  ///< null: not recording
    bool ending = false;  ///< what is recorded is being brought to disk, by a thread
    std::thread finisher;
    std::atomic<bool> finished = false;
    bool is_recording() const { return recorder && !ending; }
  };
  using Entries = std::map<std::string, std::unique_ptr<Entry>>;  ///< by the pod's uid

  void look();
  void follow_folder();
  void tick();
  std::map<std::string, Wanted> wanted() const;
  bool is_there(const std::string& uid) const;
  void begin(const std::string& uid, const Wanted& wanted);
  std::optional<std::string> was_over(const Entry& entry, const policy::RecordingSpec& spec) const;
  Status open(Entry& entry, const Wanted& wanted);
  static record::PodFile first_file(const Entry& entry);
  std::vector<RecordingBudget::Claim> claims() const;
  record::RotatingOptions options_for(const Entry& entry, const Wanted& wanted) const;
  void adopt_earlier_files(Entry& entry) const;
  void end(Entry& entry, const std::string& reason);
  void settle();
  void count(Entry& entry);
  void tell_agent();
  void publish();
  Entry* recording_of(model::CgroupId cgroup);
  std::int64_t now_s() const;

  boost::asio::io_context& io_;
  const Clock& clock_;
  Sources sources_;
  std::string directory_;  ///< as settings say; store_ follows when nothing is being recorded
  RecordingBudget budget_;
  record::RecordingStore store_;
  boost::asio::steady_timer tick_timer_;
  std::atomic<bool> look_pending_ = false;
  std::uint64_t ticks_ = 0;
  bool ticking_ = false;
  Entries entries_;
  std::unordered_map<model::CgroupId, Entry*, model::IdentityHash> by_cgroup_;
  mutable std::mutex mutex_;
  std::vector<PodRecordingStatus> published_;
  RecordingTotals totals_;
};

}  // namespace ingero::app
