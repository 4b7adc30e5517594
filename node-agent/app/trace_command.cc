// SPDX-License-Identifier: Apache-2.0
// A run of the agent on this host: what is shown and served around the data path of agent.cc.
#include <fmt/format.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "app/agent.h"
#include "app/trace_options.h"
#include "app/version.h"
#include "cli/call_line.h"
#include "cli/line_writer.h"
#include "cli/live_table.h"
#include "cli/summary.h"
#include "cli/tally_file.h"
#include "cli/terminal.h"
#include "export/debug_state.h"
#include "export/http_server.h"
#include "export/prometheus_collectable.h"

namespace ingero::app {
namespace {

using namespace std::chrono_literals;

constexpr auto kFrameInterval = 1s;
constexpr auto kWindowInterval = 10s;
constexpr std::size_t kFlushBytes = 64 << 10;
constexpr std::size_t kMaxLabels = 8192;

class TraceRun {
 public:
  explicit TraceRun(TraceOptions options) : options_(std::move(options)) {}

  Result<int> run() {
    if (auto status = start(); !status) return fail(status.error());
    io_.run();
    return finish();
  }

 private:
  Status start();
  Status serve();
  void stop_on_signals();
  void stop_after_duration();
  void draw_frames();
  void draw_frame();
  void feed_window();
  bool print_call(const call_event& event);
  void flush_calls();
  Result<int> finish();
  Result<int> compare(const model::Snapshot& snapshot) const;
  exporting::Workload workload_of(model::CgroupId cgroup) const {
    return {"", "", agent_->label_of(cgroup)};
  }
  std::function<std::string(model::CgroupId)> labels() const {
    return [this](model::CgroupId cgroup) { return agent_->label_of(cgroup); };
  }
  const std::string& cached_label(model::CgroupId cgroup);
  nlohmann::json extra_state() const;

  TraceOptions options_;
  boost::asio::io_context io_;
  boost::asio::signal_set signals_{io_};
  boost::asio::steady_timer duration_timer_{io_}, frame_timer_{io_}, window_timer_{io_};
  std::unique_ptr<Agent> agent_;
  std::unique_ptr<exporting::PrometheusCollectable> collectable_;
  std::unique_ptr<exporting::HttpServer> server_;
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
  AgentOptions agent_options;
  agent_options.config = options_.config;
  agent_options.only_pid = options_.pid;
  agent_options.only_cgroup = options_.cgroup;
  if (options_.print_calls)
    agent_options.on_call = [this](const call_event& event) { return print_call(event); };
  if (options_.print_calls) call_writer_ = std::make_unique<cli::LineWriter>(STDOUT_FILENO);
  auto agent = Agent::create(io_, std::move(agent_options));
  if (!agent) return fail(agent.error());
  agent_ = std::move(*agent);
  started_ns_ = system_clock_source().monotonic_ns();
  if (options_.serve) {
    if (auto status = serve(); !status) return status;
  }
  stop_on_signals();
  stop_after_duration();
  agent_->start();
  if (options_.print_calls && !options_.json) {
    call_writer_->write(cli::call_text_header());
  }
  if (options_.show_table && !options_.print_calls) draw_frames();
  return {};
}

Status TraceRun::serve() {
  const auto lookup = [this](model::CgroupId cgroup) { return workload_of(cgroup); };
  exporting::CollectableOptions collectable_options;
  collectable_options.node = options_.config.node_name;
  collectable_options.max_series = options_.config.max_series;
  collectable_options.version = kVersion;
  collectable_options.revision = kRevision;
  collectable_ = std::make_unique<exporting::PrometheusCollectable>(
      collectable_options, [this] { return agent_->snapshot(); }, lookup);
  exporting::HttpHandlers handlers;
  handlers.metrics = [this] { return exporting::metrics_text(*collectable_); };
  handlers.readiness = [this] {
    const auto waiting = exporting::waiting_for(*agent_->snapshot());
    return exporting::Readiness{true,
                                waiting.empty() ? "ready" : "ready; waiting: " + waiting.front()};
  };
  handlers.debug_state = [this, lookup] {
    return exporting::debug_state_text(*agent_->snapshot(), lookup, extra_state());
  };
  exporting::HttpOptions http;
  http.host = options_.serve->host;
  http.port = options_.serve->port;
  auto server = exporting::HttpServer::create(std::move(http), std::move(handlers));
  if (!server) return fail(server.error());
  server_ = std::move(*server);
  feed_window();
  if (!on_terminal_ || options_.print_calls || !options_.show_table)
    spdlog::info("serving /metrics on {}",
                 to_string(ListenAddress{options_.serve->host, server_->port()}));
  return {};
}

nlohmann::json TraceRun::extra_state() const {
  nlohmann::json trials = nlohmann::json::array();
  for (const attach::MethodTrial& trial : agent_->trials())
    trials.push_back(
        {{"method", to_string(trial.method)}, {"works", trial.works}, {"detail", trial.detail}});
  return {{"version", kVersion},
          {"attach_methods_tried", std::move(trials)},
          {"new_mappings_noticed_by", agent_->watch_text()},
          {"config", config::to_yaml(options_.config)}};
}

void TraceRun::stop_on_signals() {
  signals_.add(SIGINT);
  signals_.add(SIGTERM);
  signals_.async_wait([this](const boost::system::error_code& error, int) {
    if (!error) io_.stop();
  });
}

void TraceRun::stop_after_duration() {
  if (!options_.duration) return;
  duration_timer_.expires_after(*options_.duration);
  duration_timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) io_.stop();
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
  auto current = agent_->snapshot();
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

void TraceRun::feed_window() {
  collectable_->observe(*agent_->snapshot());
  window_timer_.expires_after(kWindowInterval);
  window_timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) feed_window();
  });
}

const std::string& TraceRun::cached_label(model::CgroupId cgroup) {
  if (call_labels_.size() > kMaxLabels) call_labels_.clear();  // containers come and go for months
  std::string& label = call_labels_[cgroup];
  if (label.empty()) label = agent_->label_of(cgroup);
  return label;
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
  agent_->drain_calls();
  flush_calls();
  call_writer_.reset();  // before the summary, if both go to one terminal
  const auto snapshot = agent_->snapshot();
  if (server_) server_->stop();
  static_cast<void>(screen_.finish());
  const std::size_t width = on_terminal_ ? cli::terminal_size(STDOUT_FILENO).width : 0;
  const std::string summary = cli::render_summary(
      *snapshot, labels(), {width, on_terminal_ && cli::wants_colour(STDOUT_FILENO)});
  // Calls as JSON lines go to a program: the summary is for the person beside it.
  const int fd = options_.print_calls ? STDERR_FILENO : STDOUT_FILENO;
  if (options_.show_table || options_.print_calls)
    static_cast<void>(cli::write_all(fd, "\n" + summary));
  return compare(*snapshot);
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
