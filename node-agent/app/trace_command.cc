// SPDX-License-Identifier: Apache-2.0
// A run of the agent on this host: what is shown and served around the data path of agent.cc.
#include <fmt/format.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/post.hpp>
#include <fstream>
#include <sstream>

#include "app/agent.h"
#include "app/choices.h"
#include "app/cluster_session.h"
#include "app/heartbeat.h"
#include "app/live_config.h"
#include "app/recordings.h"
#include "app/serving.h"
#include "app/settings_source.h"
#include "app/signal_watch.h"
#include "app/trace_options.h"
#include "cli/call_line.h"
#include "cli/line_writer.h"
#include "cli/live_table.h"
#include "cli/summary.h"
#include "cli/tally_file.h"
#include "cli/terminal.h"
#include "export/listener.h"

namespace ingero::app {
namespace {

using namespace std::chrono_literals;

constexpr auto kFrameInterval = 1s;
constexpr auto kEndPatience = 2s;
constexpr auto kReleasePatience = 30s;  // old kernels take long to close perf events
constexpr int kNoSummary = 1;
constexpr std::size_t kFlushBytes = 64 << 10;
constexpr std::size_t kMaxLabels = 8192;

/// One word for the terminal.
std::string display_name(const exporting::Workload& workload) {
  if (workload.pod.empty()) return workload.container;
  return fmt::format("{}/{}/{}", workload.k8s_namespace, workload.pod, workload.container);
}

class TraceRun {
 public:
  explicit TraceRun(TraceOptions options)
      : options_(std::move(options)), settings_(options_.config, options_.overrides) {}

  Result<int> run() {
    if (auto status = start(); !status) return fail(status.error());
    io_.run();
    return finish();
  }

 private:
  Status start();
  Status serve();
  Status begin_settings();
  Status can_start(const config::Config& config) const;
  Status join_cluster();
  Status apply(const config::Config& config);
  void stop(int signal);
  void stop_after_duration();
  void draw_frames();
  void draw_frame();
  void stream_events(AgentOptions& options);
  bool take_call(const call_event& event);
  bool print_call(const call_event& event);
  void flush_calls();
  Result<int> finish();
  Result<int> compare(const model::Snapshot& snapshot) const;
  std::function<std::string(model::CgroupId)> labels() const {
    return [this](model::CgroupId cgroup) { return display_name(agent_->workload_of(cgroup)); };
  }
  const std::string& cached_label(model::CgroupId cgroup);

  TraceOptions options_;
  boost::asio::io_context io_;
  /// Goes last: what the others wait for at their end has a deadline.
  SignalWatch signals_{io_, [this](int signal) { stop(signal); }};
  Heartbeat heartbeat_{io_};
  boost::asio::steady_timer duration_timer_{io_}, frame_timer_{io_};
  LiveConfig settings_;
  std::unique_ptr<Agent> agent_;
  std::unique_ptr<Recordings> recordings_;
  std::string end_reason_ = "ended";
  std::unique_ptr<ClusterSession> cluster_;  ///< null outside of a cluster
  std::optional<ConfigFileSource> config_file_;
  std::unique_ptr<Serving> serving_;  ///< null: no HTTP server
  cli::LiveScreen screen_{STDOUT_FILENO};
  bool on_terminal_ = cli::is_terminal(STDOUT_FILENO);
  std::shared_ptr<const model::Snapshot> previous_;
  std::uint64_t previous_ns_ = 0;
  std::uint64_t started_ns_ = 0;
  fmt::memory_buffer call_text_;
  std::unique_ptr<cli::LineWriter> call_writer_;
  std::unordered_map<model::CgroupId, std::string, model::IdentityHash> call_labels_;
};

Status TraceRun::start() {
  if (auto status = begin_settings(); !status) return status;
  AgentOptions agent_options;
  agent_options.config = options_.config;
  agent_options.in_cluster = options_.kubernetes.enabled;
  agent_options.only_pid = options_.pid;
  agent_options.only_cgroup = options_.cgroup;
  agent_options.keep_ended = options_.keep_ended;
  stream_events(agent_options);
  if (options_.print_calls) call_writer_ = std::make_unique<cli::LineWriter>(STDOUT_FILENO);
  auto agent = Agent::create(io_, std::move(agent_options));
  if (!agent) return fail(agent.error());
  agent_ = std::move(*agent);
  recordings_ = std::make_unique<Recordings>(io_, *agent_, options_.recording);
  if (options_.kubernetes.enabled) recordings_->record_pods(options_.config);
  started_ns_ = system_clock_source().monotonic_ns();
  settings_.set_applier([this](const config::Config& config) { return apply(config); });
  if (auto status = join_cluster(); !status) return status;
  // Before /readyz answers: who waits for it may query the file.
  if (!options_.recording.path.empty()) {
    if (auto status = recordings_->record_all(); !status) return status;
  }
  if (auto status = serve(); !status) return status;
  stop_after_duration();
  agent_->start();
  if (!options_.config_file.empty()) {
    config_file_.emplace(io_, settings_, options_.config_file);
    if (auto status = config_file_->start(); !status)
      spdlog::warn("{}; changes of the file are not noticed", status.error().message());
  }
  if (options_.print_calls && !options_.json) {
    call_writer_->write(cli::call_text_header());
  }
  if (options_.show_table && !options_.print_calls) draw_frames();
  return {};
}

// ---- cluster and settings ------------------------------------------------------------------------

/// The agent is made of them. Not all of them can change later.
Status TraceRun::begin_settings() {
  if (options_.kubernetes.enabled) {
    settings_.set_applier([this](const config::Config& config) { return can_start(config); });
    if (auto status = begin_with_cluster_settings(settings_, options_.kubernetes); !status)
      return status;
  }
  options_.config = settings_.start();
  if (options_.follow_listen_address) options_.serve = options_.config.listen_address;
  setup_log(options_.config.log_level, options_.config.log_format);
  return {};
}

/// Settings that this host cannot do, or under which nobody could ask what is wrong, are refused, not started
/// with.
Status TraceRun::can_start(const config::Config& config) const {
  if (auto status = Agent::can_run(config); !status) return status;
  const ListenAddress& address = config.listen_address;
  if (!options_.follow_listen_address) return {};
  const auto tried = exporting::listen_tcp(address.host, address.port);
  return tried ? Status{} : fail(tried.error());
}

Status TraceRun::join_cluster() {
  if (!options_.kubernetes.enabled) return {};
  ClusterHooks hooks;
  hooks.recordings = [this] { return recordings_->pods()->status(); };
  hooks.on_settings = [this] { recordings_->look_soon(); };
  auto session =
      ClusterSession::start(io_, *agent_, settings_, options_.kubernetes, std::move(hooks));
  if (!session) return fail(session.error());
  cluster_ = std::move(*session);
  return {};
}

/// On the io_context's thread. What can fail comes first.
Status TraceRun::apply(const config::Config& config) {
  // Else the agent would not come back from its next start.
  if (config.attach_method != options_.config.attach_method ||
      config.cgroup_hierarchy != options_.config.cgroup_hierarchy) {
    if (auto status = Agent::can_run(config); !status) return status;
  }
  if (serving_) {
    if (auto status = serving_->follow(config); !status) return status;
  }
  setup_log(config.log_level, config.log_format);
  if (serving_) serving_->set_limits(config);
  agent_->apply_config(config);
  recordings_->set_config(config);
  if (cluster_) cluster_->apply(config);
  return {};
}

Status TraceRun::serve() {
  if (!options_.serve) return {};
  ServingOptions options;
  options.address = *options_.serve;
  options.follow_settings = options_.follow_listen_address;
  // A live table would be torn by the line.
  options.tell_address = !on_terminal_ || options_.print_calls || !options_.show_table;
  auto serving = Serving::start({*agent_, settings_, *recordings_, heartbeat_, cluster_.get()},
                                std::move(options));
  if (!serving) return fail(serving.error());
  serving_ = std::move(*serving);
  return {};
}

void TraceRun::stop(int signal) {
  end_reason_ = signal == SIGINT ? "interrupted" : signal == SIGHUP ? "hung up" : "terminated";
  io_.stop();
}

void TraceRun::stop_after_duration() {
  if (!options_.duration) return;
  duration_timer_.expires_after(*options_.duration);
  duration_timer_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    end_reason_ = "duration over";
    io_.stop();
  });
}

void TraceRun::draw_frames() {
  draw_frame();
  frame_timer_.expires_after(kFrameInterval);
  frame_timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) draw_frames();
  });
}

void TraceRun::draw_frame() {
  auto current = agent_->snapshot(collect::CallRows::by_process);
  const std::uint64_t now = system_clock_source().monotonic_ns();
  const cli::LiveView view{
      {previous_.get(), previous_ns_}, {current.get(), now}, labels(), now - started_ns_};
  if (on_terminal_) {
    const auto size = cli::terminal_size(STDOUT_FILENO);
    static_cast<void>(screen_.draw(
        cli::render_frame(view, {size.width, size.height, cli::wants_colour(STDOUT_FILENO)})));
  } else {
    static_cast<void>(cli::write_all(STDOUT_FILENO, cli::render_plain(view)));
  }
  previous_ = std::move(current);
  previous_ns_ = now;
}

const std::string& TraceRun::cached_label(model::CgroupId cgroup) {
  if (call_labels_.size() > kMaxLabels) call_labels_.clear();  // containers come and go for months
  std::string& label = call_labels_[cgroup];
  if (label.empty()) label = display_name(agent_->workload_of(cgroup));
  return label;
}

/// Every event goes to recordings; they are there before anything is streamed.
void TraceRun::stream_events(AgentOptions& options) {
  const bool records = !options_.recording.path.empty();
  options.stream_everything = options_.print_calls || records;
  options.stream.handlers.on_call = [this](const call_event& event) { return take_call(event); };
  if (!records && !options_.kubernetes.enabled) return;
  options.stream.handlers.on_retransmit = [this](const tcp_event& event, auto owner) {
    recordings_->add(event, owner);
  };
  options.stream.handlers.on_wait = [this](const wait_event& event) { recordings_->add(event); };
  // In a cluster the setting may change.
  if (!options_.kubernetes.enabled && !options_.config.probes.scheduler)
    options_.recording.wait_threshold = options_.recording.off_cpu_threshold = 0ns;
  options.stream.wait_threshold = options_.recording.wait_threshold;
  options.stream.off_cpu_threshold = options_.recording.off_cpu_threshold;
  options.on_workloads_changed = [this] {
    if (recordings_) recordings_->look_soon();
  };
}

bool TraceRun::take_call(const call_event& event) {
  const bool room = recordings_->add(event);
  return (!options_.print_calls || print_call(event)) && room;
}

bool TraceRun::print_call(const call_event& event) {
  const auto unix_ns =
      static_cast<std::int64_t>(agent_->clock().unix_from_monotonic(event.header.time_ns));
  const std::string& label = cached_label(static_cast<model::CgroupId>(event.header.cgroup_id));
  if (call_text_.size() == 0) boost::asio::post(io_, [this] { flush_calls(); });
  if (options_.json) cli::append_call_json(call_text_, event, unix_ns, label);
  else cli::append_call_text(call_text_, event, unix_ns, label);
  if (call_text_.size() < kFlushBytes) return true;
  flush_calls();
  return !call_writer_->is_full();
}

void TraceRun::flush_calls() {
  if (call_text_.size() == 0) return;
  call_writer_->write(std::string_view(call_text_.data(), call_text_.size()));
  call_text_.clear();
  if (call_writer_->is_broken()) io_.stop();  // the reader of the pipe has gone
}

Result<int> TraceRun::finish() {
  signals_.allow_any_time();  // recordings are to be whole; they have limits of their own
  const RecordingSession::End recorded = recordings_->finish(end_reason_);
  flush_calls();
  call_writer_.reset();  // before the summary, if both go to one terminal
  signals_.allow(kEndPatience, "the last snapshot", kNoSummary);
  const auto snapshot = agent_->snapshot();
  if (serving_) serving_->stop();
  if (cluster_) cluster_->stop();
  static_cast<void>(screen_.finish());
  const std::size_t width = on_terminal_ ? cli::terminal_size(STDOUT_FILENO).width : 0;
  const std::string summary = cli::render_summary(
      *snapshot, labels(), {width, on_terminal_ && cli::wants_colour(STDOUT_FILENO)});
  // Calls as JSON lines go to a program: the summary is for the person beside it.
  const int fd = options_.print_calls ? STDERR_FILENO : STDOUT_FILENO;
  if (options_.show_table || options_.print_calls)
    static_cast<void>(cli::write_all(fd, "\n" + summary));
  if (!recorded.text.empty()) static_cast<void>(cli::write_all(fd, "\n" + recorded.text));
  const auto compared = compare(*snapshot);
  const auto status = compared && *compared == 0 && !recorded.complete ? Result<int>(1) : compared;
  signals_.allow(kReleasePatience, "the release of probes and connections", status.value_or(2));
  return status;
}

Result<int> TraceRun::compare(const model::Snapshot& snapshot) const {
  if (options_.tallies.empty()) return 0;
  std::vector<cli::TallyLine> expected;
  std::vector<std::string> containers;
  for (const auto& [container, path] : options_.tallies) {
    std::ifstream file(path);
    if (!file) return fail_errno("read tally", path);
    std::stringstream text;
    text << file.rdbuf();
    auto lines = cli::parse_tally(text.str(), container);
    if (!lines) return fail(lines.error());
    expected.insert(expected.end(), lines->begin(), lines->end());
    containers.push_back(container);
  }
  std::vector<cli::TallyLine> counted = cli::tally_of(snapshot, labels());
  std::erase_if(counted, [&](const cli::TallyLine& line) {
    return std::find(containers.begin(), containers.end(), line.container) == containers.end();
  });
  const cli::Comparison comparison = cli::compare_tallies(expected, counted);
  static_cast<void>(cli::write_all(
      STDOUT_FILENO,
      "\n" + cli::render_comparison(comparison,
                                    {0, on_terminal_ && cli::wants_colour(STDOUT_FILENO)})));
  return comparison.equal() ? 0 : 1;
}

}  // namespace

Result<int> run_trace(TraceOptions options) { return TraceRun(std::move(options)).run(); }

}  // namespace ingero::app
