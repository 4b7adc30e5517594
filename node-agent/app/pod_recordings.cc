// SPDX-License-Identifier: Apache-2.0
#include "app/pod_recordings.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <chrono>

#include "app/listed_recording.h"
#include "base/text.h"
#include "record/state_rows.h"

namespace ingero::app {
namespace {

using namespace std::chrono_literals;

constexpr auto kTick = 100ms;
constexpr std::uint64_t kTicksPerLook = 10;
constexpr std::uint64_t kTicksPerSnapshot = 50;
constexpr auto kDrainPatience = 2s;
constexpr std::size_t kMaxEnded = 64;
constexpr std::size_t kMaxWaiting = 32 << 10;
constexpr std::uint64_t kCacheBytes = 2 << 20;

const char kAgentEnded[] = "the agent has ended";
const char kRecording[] = "Recording";
const char kEnded[] = "Ended";
const char kRefused[] = "Refused";

/// What of a snapshot is about these cgroups.
std::shared_ptr<const model::Snapshot> part_of(const model::Snapshot& all,
                                               const std::set<model::CgroupId>& cgroups) {
  auto part = std::make_shared<model::Snapshot>();
  part->unix_ns = all.unix_ns;
  part->events_lost = all.events_lost;
  std::set<model::FileKey> files;
  for (const model::Process& process : all.processes) {
    if (!cgroups.contains(process.cgroup)) continue;
    part->processes.push_back(process);
    files.insert(process.libraries.begin(), process.libraries.end());
  }
  for (const model::Library& library : all.libraries)
    if (files.contains(library.file)) part->libraries.push_back(library);
  for (const model::Communicator& communicator : all.communicators)
    if (cgroups.contains(communicator.cgroup)) part->communicators.push_back(communicator);
  return part;
}

}  // namespace

PodRecordings::PodRecordings(boost::asio::io_context& io, const Clock& clock, Sources sources,
                             const config::RecordingsConfig& config)
    : io_(io),
      clock_(clock),
      sources_(std::move(sources)),
      directory_(config.directory),
      budget_(config),
      store_(directory_),
      tick_timer_(io) {}

PodRecordings::~PodRecordings() { stop(); }

void PodRecordings::set_config(const config::RecordingsConfig& config) {
  directory_ = config.directory;
  budget_.set_config(config);
  look();
}

void PodRecordings::look_soon() {
  if (!look_pending_.exchange(true)) boost::asio::post(io_, [this] { look(); });
}

std::int64_t PodRecordings::now_s() const {
  return static_cast<std::int64_t>(
      clock_.unix_from_monotonic(system_clock_source().monotonic_ns()) / 1'000'000'000);
}

// ---- what is asked for ---------------------------------------------------------------------------

std::map<std::string, PodRecordings::Wanted> PodRecordings::wanted() const {
  std::map<std::string, Wanted> all;
  for (const CoveredContainer& container : sources_.containers()) {
    const bool asked = container.pod && container.state == "traced" && container.decision &&
                       container.decision->recording;
    if (!asked) continue;
    Wanted& pod = all[container.pod->uid];
    // Policies may select containers of one pod differently: what the first one asks for holds.
    if (!pod.pod) pod.wish = *container.decision->recording;
    pod.pod = container.pod;
    pod.cgroups.insert(container.cgroup);
  }
  return all;
}

bool PodRecordings::is_there(const std::string& uid) const {
  const auto containers = sources_.containers();
  return std::any_of(containers.begin(), containers.end(), [&](const auto& container) {
    return container.pod && container.pod->uid == uid && container.state != "gone";
  });
}

/// What is being recorded stays where it is: another folder is for the recordings after it.
void PodRecordings::follow_folder() {
  const bool busy = std::any_of(entries_.begin(), entries_.end(), [](const auto& entry) {
    return entry.second->recorder != nullptr;
  });
  if (!busy && store_.folder() != directory_) store_ = record::RecordingStore(directory_);
}

void PodRecordings::look() {
  look_pending_ = false;
  settle();
  follow_folder();
  const auto pods = wanted();
  const std::int64_t now = now_s();
  for (auto& [uid, entry] : entries_) {
    if (!entry->is_recording()) continue;
    const auto found = pods.find(uid);
    if (found == pods.end()) {
      end(*entry, is_there(uid) ? "no policy asks for it any more" : "the pod has ended");
      continue;
    }
    const Wanted& pod = found->second;
    const std::string trouble = entry->recorder->status().ended;
    entry->status.ends_unix_s =
        entry->status.started_unix_s + pod.wish.spec.duration / std::chrono::seconds(1);
    if (entry->request != record::request_name(uid + pod.wish.request))
      end(*entry, "another recording was asked for");
    else if (!trouble.empty()) end(*entry, trouble);
    else if (now >= entry->status.ends_unix_s) end(*entry, "duration over");
    else if (entry->cgroups != pod.cgroups) entry->cgroups = pod.cgroups;
  }
  for (const auto& [uid, pod] : pods) begin(uid, pod);
  tell_agent();
  publish();
  const bool busy = std::any_of(entries_.begin(), entries_.end(), [](const auto& entry) {
    return entry.second->status.state != kEnded;
  });
  if (busy && !ticking_) tick();
}

void PodRecordings::tick() {
  ++ticks_;
  const auto snapshot = ticks_ % kTicksPerSnapshot == 0 ? sources_.snapshot() : nullptr;
  bool busy = false;
  for (auto& [uid, entry] : entries_) {
    busy = busy || entry->status.state != kEnded;
    if (!entry->is_recording()) continue;
    entry->recorder->tick();
    if (snapshot) entry->recorder->update(part_of(*snapshot, entry->cgroups));
  }
  ticking_ = busy;
  if (!busy) return;
  tick_timer_.expires_after(kTick);
  tick_timer_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    if (ticks_ % kTicksPerLook == 0) look();
    tick();
  });
}

// ---- the beginning of a recording ----------------------------------------------------------------

void PodRecordings::begin(const std::string& uid, const Wanted& wanted) {
  const std::string request = record::request_name(uid + wanted.wish.request);
  std::unique_ptr<Entry>& place = entries_[uid];
  // What has ended is not begun again; what is just being finished is looked at when it is done.
  if (place && place->ending) return;
  if (place && place->request == request && place->status.state != kRefused) return;
  auto entry = std::make_unique<Entry>();
  entry->request = request;
  entry->cgroups = wanted.cgroups;
  entry->max_bytes = wanted.wish.spec.max_bytes;
  entry->status.k8s_namespace = wanted.pod->k8s_namespace;
  entry->status.pod = wanted.pod->name;
  entry->status.uid = uid;
  entry->status.policies = wanted.wish.policies;
  adopt_earlier_files(*entry);
  if (auto over = was_over(*entry, wanted.wish.spec)) {
    entry->status.state = kEnded;
    entry->status.message = std::move(*over);
    entry->status.ends_unix_s =
        entry->status.started_unix_s + wanted.wish.spec.duration / std::chrono::seconds(1);
  } else if (const auto opened = open(*entry, wanted); opened) {
    entry->status.state = kRecording;
    spdlog::info("records pod {}/{} into {}", entry->status.k8s_namespace, entry->status.pod,
                 entry->recorder->status().path);
  } else {
    entry->status.state = kRefused;
    entry->status.message = opened.error().message();
    const bool news = !place || place->status.message != entry->status.message;
    if (news)
      spdlog::warn("pod {}/{} is not recorded: {}", entry->status.k8s_namespace, entry->status.pod,
                   entry->status.message);
  }
  place = std::move(entry);
}

void PodRecordings::adopt_earlier_files(Entry& entry) const {
  for (record::PodFile& file : store_.list()) {
    if (file.k8s_namespace != entry.status.k8s_namespace || file.pod != entry.status.pod ||
        file.request != entry.request)
      continue;
    if (entry.earlier.empty()) entry.status.started_unix_s = file.started_unix_s;
    if (file.started_unix_s != entry.status.started_unix_s) continue;
    entry.status.files.path = file.path;
    entry.status.files.bytes += file.bytes;
    ++entry.status.files.files;
    entry.earlier.push_back(std::move(file));
  }
}

/// Why there is nothing to go on with where an agent before this one has recorded.
std::optional<std::string> PodRecordings::was_over(const Entry& entry,
                                                   const policy::RecordingSpec& spec) const {
  if (entry.earlier.empty()) return std::nullopt;
  using record::RotatingRecorder;
  const std::string told = list_recording(entry.earlier.back()).end_reason;
  // Full, when the agent ended before it began the next one.
  const bool has_next =
      told == record::kBudgetReached && RotatingRecorder::rotates(spec.max_bytes, spec.files);
  if (!told.empty() && told != kAgentEnded && told != RotatingRecorder::kNextFile && !has_next)
    return told;
  if (now_s() >= entry.status.started_unix_s + spec.duration / std::chrono::seconds(1))
    return "duration over";
  if (!RotatingRecorder::has_room(spec.max_bytes, spec.files, entry.status.files.bytes))
    return "its files have taken its size";
  return std::nullopt;
}

Status PodRecordings::open(Entry& entry, const Wanted& wanted) {
  if (entry.earlier.empty()) entry.status.started_unix_s = now_s();
  if (auto reason = budget_.refusal(store_, claims(), {first_file(entry), entry.max_bytes}))
    return fail(Error{"record pod", entry.status.k8s_namespace + "/" + entry.status.pod,
                      std::move(*reason), "", 0});
  entry.status.ends_unix_s =
      entry.status.started_unix_s + wanted.wish.spec.duration / std::chrono::seconds(1);
  auto recorder = record::RotatingRecorder::create(options_for(entry, wanted), clock_);
  if (!recorder) return fail(recorder.error());
  entry.recorder = std::move(*recorder);
  return {};
}

record::PodFile PodRecordings::first_file(const Entry& entry) {
  record::PodFile file;
  file.k8s_namespace = entry.status.k8s_namespace;
  file.pod = entry.status.pod;
  file.request = entry.request;
  file.started_unix_s = entry.status.started_unix_s;
  return file;
}

std::vector<RecordingBudget::Claim> PodRecordings::claims() const {
  std::vector<RecordingBudget::Claim> claims;
  for (const auto& [uid, entry] : entries_)
    if (entry && entry->recorder) claims.push_back({first_file(*entry), entry->max_bytes});
  return claims;
}

record::RotatingOptions PodRecordings::options_for(const Entry& entry, const Wanted& wanted) const {
  record::RotatingOptions options;
  options.recorder = sources_.recorder();
  options.recorder.facts.selection = fmt::format("pod {}/{} (uid {})", entry.status.k8s_namespace,
                                                 entry.status.pod, entry.status.uid);
  options.recorder.max_waiting = kMaxWaiting;
  options.recorder.cache_bytes = kCacheBytes;
  options.recorder.free_bytes = [this](const std::string& path) -> std::optional<std::uint64_t> {
    return budget_.free_bytes(path);
  };
  options.max_bytes = entry.max_bytes;
  options.files = wanted.wish.spec.files;
  options.snapshot = part_of(*sources_.snapshot(), wanted.cgroups);
  for (const record::PodFile& file : entry.earlier) {
    options.earlier_files.push_back(file.path);
    options.first_number = file.number + 1;
  }
  options.path_of =
      [this, file = first_file(entry)](std::uint32_t number) mutable -> Result<std::string> {
    file.number = number;
    const auto named = store_.name(file);
    if (!named) return fail(named.error());
    if (auto made = store_.prepare(*named); !made) return fail(made.error());
    return named->path;
  };
  return options;
}

// ---- its end -------------------------------------------------------------------------------------

void PodRecordings::end(Entry& entry, const std::string& reason) {
  entry.ending = true;
  entry.status.message = reason;
  tell_agent();
  const auto patience = std::chrono::steady_clock::now() + kDrainPatience;
  while (!sources_.drain() && std::chrono::steady_clock::now() < patience)
    std::this_thread::sleep_for(5ms);  // a writer is behind
  std::erase_if(by_cgroup_, [&](const auto& known) { return known.second == &entry; });
  spdlog::info("recording of pod {}/{} ended: {}", entry.status.k8s_namespace, entry.status.pod,
               reason);
  entry.status.files = entry.recorder->status();  // what is told until the end is written
  entry.finisher = std::thread([&entry, reason] {
    entry.recorder->finish(reason);
    entry.finished = true;
  });
}

/// Takes over what has been finished since.
void PodRecordings::settle() {
  std::size_t ended = 0;
  for (auto& [uid, entry] : entries_) {
    if (entry->ending && entry->finished) {
      entry->finisher.join();
      entry->ending = false;
      entry->status.state = kEnded;
      entry->status.files = entry->recorder->status();
      count(*entry);
      entry->recorder.reset();
    }
    ended += entry->status.state != kRecording ? 1 : 0;
  }
  if (ended <= kMaxEnded) return;
  const auto pods = wanted();
  std::erase_if(entries_, [&](const auto& known) {
    const Entry& entry = *known.second;
    return !entry.recorder && !pods.contains(known.first);
  });
}

void PodRecordings::stop() {
  tick_timer_.cancel();
  for (auto& [uid, entry] : entries_)
    if (entry->is_recording()) end(*entry, kAgentEnded);
  for (auto& [uid, entry] : entries_)
    if (entry->ending) entry->finisher.join();
  entries_.clear();
}

void PodRecordings::tell_agent() {
  std::set<std::string> uids;
  for (auto& [uid, entry] : entries_) {
    if (!entry || !entry->is_recording()) continue;
    uids.insert(uid);
    for (const model::CgroupId cgroup : entry->cgroups) by_cgroup_[cgroup] = entry.get();
  }
  if (auto told = sources_.record_pods(std::move(uids)); !told)
    spdlog::error("nothing can be recorded: {}", told.error().message());
}

// ---- what is recorded ----------------------------------------------------------------------------

PodRecordings::Entry* PodRecordings::recording_of(model::CgroupId cgroup) {
  const auto found = by_cgroup_.find(cgroup);
  return found == by_cgroup_.end() ? nullptr : found->second;
}

bool PodRecordings::add(const call_event& call) {
  const auto cgroup = static_cast<model::CgroupId>(call.header.cgroup_id);
  Entry* entry = recording_of(cgroup);
  if (entry == nullptr && !look_pending_) {
    // A container that has just begun in a pod that is recorded.
    for (const auto& [uid, pod] : wanted()) {
      const auto known = entries_.find(uid);
      if (!pod.cgroups.contains(cgroup) || known == entries_.end()) continue;
      if (!known->second->is_recording()) continue;
      known->second->cgroups.insert(cgroup);
      entry = by_cgroup_[cgroup] = known->second.get();
    }
    if (entry == nullptr) look_soon();
  }
  return entry == nullptr || entry->recorder->add(call);
}

void PodRecordings::add(std::uint64_t cgroup, const record::TcpEvent& event) {
  if (Entry* entry = recording_of(static_cast<model::CgroupId>(cgroup)))
    entry->recorder->add(event);
}

void PodRecordings::add(const record::SchedEvent& event) {
  if (Entry* entry = recording_of(static_cast<model::CgroupId>(event.cgroup_id)))
    entry->recorder->add(event);
}

// ---- what is told --------------------------------------------------------------------------------

/// Adds to the totals what the entry has counted since it was last asked.
void PodRecordings::count(Entry& entry) {
  const record::RotatingStatus& now = entry.status.files;
  const std::lock_guard lock(mutex_);
  const RecordingTotals before = entry.counted;
  entry.counted = {std::max(now.calls, before.calls), std::max(now.lost, before.lost)};
  totals_.calls += entry.counted.calls - before.calls;
  totals_.lost += entry.counted.lost - before.lost;
}

void PodRecordings::publish() {
  std::vector<PodRecordingStatus> all;
  for (const auto& [uid, entry] : entries_) {
    if (entry->is_recording()) entry->status.files = entry->recorder->status();
    count(*entry);
    all.push_back(entry->status);
  }
  const std::lock_guard lock(mutex_);
  published_ = std::move(all);
}

std::vector<PodRecordingStatus> PodRecordings::status() const {
  const std::lock_guard lock(mutex_);
  return published_;
}

RecordingTotals PodRecordings::totals() const {
  const std::lock_guard lock(mutex_);
  return totals_;
}

}  // namespace ingero::app
