// SPDX-License-Identifier: Apache-2.0
// The architecture, read from top to bottom: what is built in which order, and who tells whom.
#include "app/agent.h"

#include <bpf/bpf.h>
#include <fmt/format.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <cstring>
#include <utility>

#include "app/choices.h"
#include "app/process_status.h"

namespace ingero::app {
namespace {

using namespace std::chrono_literals;
using model::AttachMethod;

constexpr std::size_t kManyEnded = 512;
constexpr auto kFirstScanPatience = 5s;
constexpr auto kFirstScanPause = 10ms;
constexpr auto kBetweenScans = 1s;
/// Then whatever else the loop has to do comes first.
constexpr collect::TurnLimit kLifecycleTurn{256, 5ms};
constexpr int kMaxTurns = 32;  // until a streamed call waits no longer for its cgroup's path
}  // namespace

Result<std::unique_ptr<Agent>> Agent::create(boost::asio::io_context& io, AgentOptions options) {
  auto mount =
      attribute::find_cgroup_hierarchy({}, forced_hierarchy(options.config.cgroup_hierarchy));
  if (!mount) return fail(mount.error());
  std::unique_ptr<Agent> agent(new Agent(io, std::move(options), std::move(*mount)));
  if (auto status = agent->load(); !status) return fail(status.error());
  agent->await_first_scan();
  return agent;
}

Status Agent::can_run(const config::Config& config) {
  const auto mount =
      attribute::find_cgroup_hierarchy({}, forced_hierarchy(config.cgroup_hierarchy));
  if (!mount) return fail(mount.error());
  if (config.attach_method == config::AttachMethod::automatic) return {};
  const auto method = choose_method(attach::try_attach_methods(), config.attach_method);
  return method ? Status{} : fail(method.error());
}

Agent::Agent(boost::asio::io_context& io, AgentOptions options, attribute::CgroupMount mount)
    : io_(io),
      options_(std::move(options)),
      resolver_({}, std::move(mount)),
      lifecycle_descriptor_(io),
      scan_timer_(io),
      rescan_timer_(io),
      housekeeping_timer_(io) {}

Agent::~Agent() {
  if (probes_) probes_->leave_to_child();
}

Status Agent::load() {
  trials_ = attach::try_attach_methods();
  const auto method = choose_method(trials_, options_.config.attach_method);
  if (!method) return fail(method.error());
  method_ = *method;
  if (method_ != AttachMethod::kEntryOnly) {
    const auto seccomp = attach::try_return_probe_under_seccomp(method_);
    if (seccomp.tried && !seccomp.survives) {
      spdlog::warn("return probes would kill processes under seccomp: counting entries only ({})",
                   seccomp.detail);
      method_ = AttachMethod::kEntryOnly;
    }
  }
  attach::BpfOptions bpf_options;
  bpf_options.method = method_;
  bpf_options.call_entries = options_.config.map_entries;
  bpf_options.settings.cgroup_source = source_of(resolver_.mount().hierarchy());
  bpf_options.settings.stream_calls = options_.stream_everything ? 1 : 0;
  bpf_options.settings.only_listed_processes = options_.only_pid ? 1 : 0;
  bpf_options.find_sockets = options_.stream.handlers.on_retransmit != nullptr;
  const auto tail_calls = attach::choose_thread_stack(method_);
  if (!tail_calls) return fail(tail_calls.error());
  bpf_options.tail_calls = *tail_calls;
  bpf_options.settings.entry_only = method_ == AttachMethod::kEntryOnly ? 1 : 0;
  auto bpf = attach::BpfObject::create(bpf_options);
  if (!bpf) return fail(bpf.error());
  bpf_ = std::move(*bpf);
  if (options_.only_pid) {
    const std::uint8_t yes = 1;
    bpf_map_update_elem(bpf_->handles().traced_tgids, &*options_.only_pid, &yes, BPF_ANY);
  }
  scanner_ = std::make_unique<discover::MappingScanner>(bpf_->handles());
  host_scanner_ = std::make_unique<HostScanner>(
      *scanner_, [this](std::function<void()> task) { boost::asio::post(io_, std::move(task)); });
  probes_ =
      std::make_unique<attach::LibraryProbes>(*bpf_, method_, [this](const model::FileKey& file) {
        boost::asio::post(io_, [this, file] { registry_->written(file); });
      });
  memory_worker_ = std::make_unique<DeadlineWorker>(
      [this](std::function<void()> task) { boost::asio::post(io_, std::move(task)); });
  layouts_ = std::make_unique<collect::CommLayouts>(bpf_->handles(), memory_worker_.get());
  worker_ = std::make_unique<DeadlineWorker>(
      [this](std::function<void()> task) { boost::asio::post(io_, std::move(task)); });
  registry_ = std::make_unique<LibraryRegistry>(
      *probes_, *layouts_, *worker_, method_,
      ProbeChoice{options_.config.probes.nccl, options_.config.probes.cuda});
  finder_ = std::make_unique<discover::LibraryFinder>(
      *scanner_, open_preference(options_.config.open_method), *worker_,
      discover::LibraryFinder::Handlers{
          [this](discover::Discovery discovery) { on_discovery(std::move(discovery)); },
          [this](const model::Refusal& refusal) { registry_->refused(refusal); },
          [this](const model::FileKey& file) { return probes_->is_leased(file); }});
  registry_->set_finder(finder_.get());
  collector_ = std::make_unique<collect::CallCollector>(bpf_->handles(), clock_);
  collector_->set_resolver(layouts_.get());
  workloads_ = std::make_unique<Workloads>(
      [this] {
        model::Snapshot counts;
        const std::lock_guard lock(collector_mutex_);
        collector_->read(counts);
        return counts;
      },
      [this](const auto& changes) { write_policies(changes); });
  if (options_.in_cluster)
    workloads_->set_cluster(std::make_shared<ClusterView>(
        ClusterView{std::make_shared<const k8s::PodSnapshot>(), false, nullptr, nullptr}));
  configure_workloads();
  sockets_ = std::make_unique<SocketOwners>(resolver_, [this] { return registry_->processes(); });
  watch_network();
  // Before the first scan, so that nothing is mapped unseen between the two.
  mappings_ = std::make_unique<MappingFollower>(
      io_, MappingFollower::Handlers{
               [this] {
                 host_scanner_->look_at_all();
                 scan_host();
               },
               [this](std::uint32_t pid, std::uint64_t ns, MappingFollower::Seen seen) {
                 scan_process(pid, ns, std::move(seen));
               }});
  host_scanner_->trust_events(mappings_->has_events());
  return open_rings();
}

Status Agent::open_rings() {
  auto lifecycle = collect::EventReader::create(
      bpf_->handles().lifecycle_events, [this](const event_header& header, std::size_t size) {
        on_lifecycle_event(header, size);
        return true;
      });
  if (!lifecycle) return fail(lifecycle.error());
  lifecycle_ = std::move(*lifecycle);
  StreamOptions stream = options_.stream;
  stream.is_selected = [this](model::CgroupId cgroup) {
    // The kernel has told the cgroup's path before its first call.
    auto turn = options_.only_cgroup.empty() ? collect::Turn::all : collect::Turn::more;
    for (int i = 0; i < kMaxTurns && turn == collect::Turn::more &&
                    resolver_.snapshot()->find(cgroup) == nullptr;
         ++i)
      turn = lifecycle_->consume(kLifecycleTurn);
    return is_selected(cgroup);
  };
  stream.owner_of = [this](model::CgroupId cgroup, std::uint32_t netns) {
    return sockets_->owner(cgroup, netns);
  };
  stream_ = std::make_unique<CallStream>(io_, *bpf_, std::move(stream));
  return options_.stream_everything ? stream_->open() : Status{};
}

Status Agent::record_pods(std::set<std::string> uids) {
  const bool none = uids.empty();
  if (!none) {
    const bool polled = stream_->is_open();
    if (auto status = stream_->open(); !status) return status;
    if (!polled) stream_->poll();
  }
  workloads_->set_recorded_pods(std::move(uids));
  if (none) stream_->close_when_empty();
  return {};
}

void Agent::start() {
  mappings_->start();
  lifecycle_descriptor_.assign(::dup(lifecycle_->descriptor()));
  await_lifecycle();
  every(scan_timer_, scan_interval(), &Agent::scan_host);
  every(housekeeping_timer_, 1s, &Agent::housekeeping);
  if (stream_->is_open()) stream_->poll();
}

void Agent::await_lifecycle() {
  lifecycle_descriptor_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                                   [this](const boost::system::error_code& error) {
                                     if (!error) take_lifecycle();
                                   });
}

void Agent::take_lifecycle() {
  if (lifecycle_->consume(kLifecycleTurn) == collect::Turn::more)
    boost::asio::post(io_, [this] { take_lifecycle(); });
  else await_lifecycle();
}

void Agent::every(boost::asio::steady_timer& timer, std::chrono::nanoseconds interval,
                  void (Agent::*action)()) {
  timer.expires_after(interval);
  timer.async_wait([this, &timer, interval, action](const boost::system::error_code& error) {
    if (error) return;
    (this->*action)();
    every(timer, interval, action);
  });
}

// ---- discover, attach ------------------------------------------------------------------------------

/// What is there is traced when the agent is ready; but nobody holds up its start.
/// Until what is mapped now has its probes, or its reason why not: the walk, then the looks into files and the
/// attaches that follow from it.
void Agent::await_first_scan() {
  const auto work = boost::asio::make_work_guard(io_);
  const auto end = std::chrono::steady_clock::now() + kFirstScanPatience;
  scan_host();
  while (std::chrono::steady_clock::now() < end && !io_.stopped()) {
    const DeadlineWorker::Stats files = worker_->stats();
    const bool busy = host_scanner_->is_scanning() || files.queued + files.running != 0;
    if (io_.poll() != 0) continue;  // may have asked for more
    if (!busy) break;
    io_.run_one_for(kFirstScanPause);
  }
}

void Agent::scan_host() {
  if (host_scanner_->is_scanning()) {
    scan_again_ = true;
    return;
  }
  host_scanner_->scan_host(registry_->mappers(), [this](Result<HostScan> scan) {
    registry_->scans_postponed(host_scanner_->take_postponed());
    if (scan) take_host_scan(std::move(*scan));
    else log_limited(log_limiter_, LogLevel::error, "scan", scan.error().message());
    // Not at once: who makes events get lost must not have the agent scan without pause.
    if (std::exchange(scan_again_, false)) {
      rescan_timer_.expires_after(kBetweenScans);
      rescan_timer_.async_wait([this](const boost::system::error_code& error) {
        if (!error) scan_host();
      });
    }
  });
}

void Agent::take_host_scan(HostScan scan) {
  auto result = finder_->sort_out(scan.mappings);
  for (const model::ProcessKey& process : result.unsettled) host_scanner_->look_again(process);
  result.left_out = std::move(scan.left_out);
  result.left_out.merge(scan.unchanged);
  result.began_ns = scan.began_ns;
  learn_containers(result.processes);
  registry_->full_scan(std::move(result));
  registry_->detach_unused(options_.config.detach_grace);
  find_missed_exits(scan);
  watch_scheduler();
}

void Agent::watch_network() {
  if (auto status = bpf_->watch_network(options_.config.probes.network); !status)
    log_limited(log_limiter_, LogLevel::warn, "network",
                "TCP retransmissions are not counted: " + status.error().message());
}

/// To time the scheduler costs something at every switch of tasks, so only where there is something to
/// watch.
void Agent::watch_scheduler() {
  const bool wanted = options_.config.probes.scheduler && !registry_->empty();
  if (auto status = bpf_->watch_scheduler(wanted); !status)
    log_limited(log_limiter_, LogLevel::warn, "scheduler",
                "waits for a processor are not timed: " + status.error().message());
}

void Agent::scan_process(std::uint32_t pid, std::uint64_t noticed_ns, MappingFollower::Seen seen) {
  using Outcome = MappingFollower::Outcome;
  const auto accepted = host_scanner_->scan_process(
      pid, [this, pid, noticed_ns, seen](Result<std::vector<discover::FileMapping>> mappings) {
        if (!mappings) return seen(Outcome::postponed, {});
        if (mappings->empty() && ::kill(static_cast<pid_t>(pid), 0) != 0)
          return seen(Outcome::gone, {});
        auto result = finder_->sort_out(*mappings, noticed_ns);
        const MappingFollower::Look look{result.incomplete, result.traced_paths};
        learn_containers(result.processes);
        registry_->process_scan(pid, std::move(result));
        watch_scheduler();
        seen(Outcome::seen, look);
      });
  if (!accepted) seen(Outcome::postponed, {});
}

/// The worker has found a file that is to be traced.
void Agent::on_discovery(discover::Discovery discovery) {
  learn_containers(discovery.mappers);
  registry_->discovered(std::move(discovery));
  watch_scheduler();
}

void Agent::learn_containers(const std::vector<model::Process>& processes) {
  bool news = false;
  for (const model::Process& process : processes) {
    collector_->watch_process(process.key);
    if (resolver_.snapshot()->find(process.cgroup) != nullptr) continue;
    static_cast<void>(resolver_.learn_from_process(process.cgroup, process.key.tgid));
    news = true;
  }
  if (news) refresh_soon();
}

// ---- collect ---------------------------------------------------------------------------------------

void Agent::on_lifecycle_event(const event_header& header, std::size_t size) {
  const model::ProcessKey process{header.tgid, header.process_start_ns};
  const auto cgroup = static_cast<model::CgroupId>(header.cgroup_id);
  switch (header.kind) {
    case EVENT_PROCESS_SEEN:
      if (const auto* event = collect::event_as<process_seen_event>(header, size))
        learn_container(cgroup, *event);
      break;
    case EVENT_PROCESS_EXIT: {
      registry_->process_ended(process);
      const std::lock_guard lock(collector_mutex_);
      collector_->process_ended(process);
      if (collector_->ended_waiting() >= kManyEnded) free_ended();
      break;
    }
    case EVENT_PROCESS_EXEC: {
      mappings_->scan(header.tgid, header.time_ns);
      const std::lock_guard lock(collector_mutex_);
      collector_->process_executed(process, header.exec_id);
      break;
    }
    case EVENT_COMM_CREATED:
      if (const auto* event = collect::event_as<comm_event>(header, size)) on_comm_created(*event);
      break;
    case EVENT_COMM_ENDED:
      if (const auto* event = collect::event_as<comm_event>(header, size)) {
        const comm_key key{event->comm, header.process_start_ns, header.tgid, header.exec_id};
        const std::lock_guard lock(collector_mutex_);
        collector_->communicator_ended(key, event->info);
      }
      break;
    default: break;
  }
}

/// By the path that the kernel told: the process may be gone, and its cgroup too.
void Agent::learn_container(model::CgroupId cgroup, const process_seen_event& event) {
  if (resolver_.snapshot()->find(cgroup) != nullptr) return;
  std::vector<std::string_view> names;
  const std::size_t used = std::min<std::size_t>(event.path_size, sizeof(event.names));
  for (std::size_t at = 0; at < used; at += names.back().size() + 1)
    names.emplace_back(event.names + at, ::strnlen(event.names + at, used - at));
  const bool whole = event.path_whole != 0;
  if (whole || !resolver_.learn_from_process(cgroup, event.header.tgid))
    static_cast<void>(resolver_.learn_from_names(cgroup, names, whole));
  refresh_soon();
}

/// Rank and size of a split's child are read out of its memory, those of a shrunk one follow from its
/// parent's; the others' are arguments.
void Agent::on_comm_created(const comm_event& event) {
  const model::ApiFunction* function = model::find_api_function(event.info.function);
  if (function == nullptr || function->symbol == "ncclCommSplit" ||
      function->symbol == "ncclCommShrink")
    return;
  const comm_key key{event.comm, event.header.process_start_ns, event.header.tgid,
                     event.header.exec_id};
  layouts_->check({key, event.info.cgroup_id, event.info.library},
                  {event.info.rank, event.info.nranks}, event.info.created_ns);
}

// ---- policy --------------------------------------------------------------------------------------

exporting::Workload Agent::workload_of(model::CgroupId cgroup) const {
  exporting::Workload workload = workloads_->workload_of(cgroup);
  // Not classified yet, unless it was told without a name for too long to get one.
  if (!workload.container.empty() || workload.exported) return workload;
  const auto table = resolver_.snapshot();
  if (const attribute::ContainerInfo* info = table->find(cgroup)) workload.container = info->label;
  return workload;
}

std::vector<CoveredContainer> Agent::containers() const { return workloads_->containers(); }

void Agent::set_cluster(std::shared_ptr<const ClusterView> view) {
  workloads_->set_cluster(std::move(view));
  refresh_workloads();
}

std::chrono::nanoseconds Agent::scan_interval() const {
  const std::chrono::nanoseconds wanted = options_.config.scan_interval;
  return mappings_->has_events() ? wanted : std::min<std::chrono::nanoseconds>(wanted, 1s);
}

void Agent::apply_config(const config::Config& config) {
  const bool rescan = config.scan_interval != options_.config.scan_interval;
  const ProbeChoice probes{config.probes.nccl, config.probes.cuda};
  options_.config = config;
  configure_workloads();
  refresh_workloads();
  registry_->set_choice(probes);
  watch_network();
  host_scanner_->look_at_all();
  scan_host();
  if (rescan) every(scan_timer_, scan_interval(), &Agent::scan_host);
}

void Agent::configure_workloads() {
  const config::Config& config = options_.config;
  Workloads::Settings settings;
  settings.retention = config.series_retention;
  settings.allowed_labels = config.pod_labels;
  settings.keep_ended = options_.keep_ended;
  workloads_->set_settings(std::move(settings));
  const policy::PolicySet none({}, {}, policy_defaults(config));
  const policy::Decision fallback = none.decide_unmatched();
  workloads_->set_fallback(fallback);
  // In a cluster a container counts until it is known which policies match it.
  bpf_->set_unclassified(kernel_policy(
      options_.in_cluster
          ? policy::PolicySet({}, {}, trace_all(policy_defaults(config))).decide_unmatched()
          : fallback));
}

/// Once for all containers that come in one turn of the loop.
void Agent::refresh_soon() {
  if (std::exchange(refresh_coming_, true)) return;
  boost::asio::post(io_, [this] {
    refresh_coming_ = false;
    refresh_workloads();
  });
}

/// Thread safe.
void Agent::refresh_workloads() {
  const auto ended =
      workloads_->refresh(*resolver_.snapshot(), system_clock_source().monotonic_ns());
  if (ended.empty()) return;
  layouts_->forget({ended.begin(), ended.end()});
  const std::lock_guard lock(collector_mutex_);
  collector_->forget({ended.begin(), ended.end()});
}

void Agent::write_policies(const std::vector<KernelChange>& changes) {
  const int map = bpf_->handles().policies;
  for (const auto& [cgroup, decision, streamed] : changes) {
    const std::uint64_t key = to_number(cgroup);
    if (!decision) {
      bpf_map_delete_elem(map, &key);
      continue;
    }
    const cgroup_policy value = kernel_policy(*decision, streamed);
    if (bpf_map_update_elem(map, &key, &value, BPF_ANY) != 0) {
      log_limited(log_limiter_, LogLevel::warn, "policies_map",
                  fmt::format("policy of cgroup {}: {}; it is counted and left out of the metrics",
                              key, std::strerror(errno)));
    }
  }
  bpf_->policies_changed();
  if (options_.on_workloads_changed) options_.on_workloads_changed();
}

bool Agent::drain_calls() {
  lifecycle_->consume(kLifecycleTurn);  // whose calls they are
  return !stream_ || stream_->drain();
}

bool Agent::is_selected(model::CgroupId cgroup) const {
  const std::string& wanted = options_.only_cgroup;
  if (wanted.empty()) return true;
  const auto table = resolver_.snapshot();
  const attribute::ContainerInfo* info = table->find(cgroup);
  if (info == nullptr) return false;
  if (wanted.front() != '/') {  // a container, or one that it lives in
    return std::any_of(info->container_ids.begin(), info->container_ids.end(),
                       [&](const std::string& id) { return id.starts_with(wanted); });
  }
  return info->cgroup_path == wanted || info->cgroup_path.starts_with(wanted + "/");
}

}  // namespace ingero::app
