// SPDX-License-Identifier: Apache-2.0
#include "app/recordings.h"

#include <chrono>
#include <thread>
#include <utility>

#include "app/recording_rows.h"

namespace ingero::app {
namespace {

using namespace std::chrono_literals;

constexpr auto kDrainPatience = 3s;

}  // namespace

Recordings::Recordings(boost::asio::io_context& io, Agent& agent, RecordingOptions options)
    : io_(io),
      agent_(agent),
      options_(std::move(options)),
      holders_(io,
               [scanner = discover::SocketScanner(agent.handles())] { return scanner.scan(); }) {}

Status Recordings::record_all() {
  auto file = RecordingSession::start(io_, agent_, options_);
  if (!file) return fail(file.error());
  file_ = std::move(*file);
  return {};
}

void Recordings::record_pods(const config::Config& config) {
  scheduler_ = config.probes.scheduler;
  PodRecordings::Sources sources;
  sources.containers = [this] { return agent_.containers(); };
  sources.record_pods = [this](auto uids) { return agent_.record_pods(std::move(uids)); };
  sources.drain = [this] { return drain(); };
  sources.snapshot = [this] { return agent_.snapshot(); };
  sources.recorder = [this] {
    record::RecorderOptions options = recorder_options(agent_);
    if (!scheduler_) return options;  // the file says that there are none
    options.facts.wait_threshold_ns = options_.wait_threshold.count();
    options.facts.off_cpu_threshold_ns = options_.off_cpu_threshold.count();
    return options;
  };
  pods_ =
      std::make_unique<PodRecordings>(io_, agent_.clock(), std::move(sources), config.recordings);
}

void Recordings::set_config(const config::Config& config) {
  scheduler_ = config.probes.scheduler;
  if (pods_) pods_->set_config(config.recordings);
}

bool Recordings::add(const call_event& call) {
  const bool room = !file_ || file_->add(call);
  return (!pods_ || pods_->add(call)) && room;
}

void Recordings::add(const tcp_event& event, std::optional<model::CgroupId> owner) {
  holders_.find(event.socket_inode, event.header.time_ns,
                [this, owner, row = tcp_row(agent_.clock(), event, owner)](
                    std::optional<model::ProcessKey> process) {
                  record::TcpEvent attributed = row;
                  attributed.process = process;
                  add_row(attributed, owner);
                });
}

void Recordings::add_row(const record::TcpEvent& row, std::optional<model::CgroupId> owner) {
  if (file_) file_->add(row);
  if (pods_ && owner) pods_->add(to_number(*owner), row);
}

void Recordings::add(const wait_event& event) {
  const record::SchedEvent row = wait_row(agent_.clock(), event);
  if (file_) file_->add(row);
  if (pods_) pods_->add(row);
}

void Recordings::look_soon() {
  if (pods_) pods_->look_soon();
}

/// False: a writer is behind.
bool Recordings::drain() {
  if (!agent_.drain_calls()) return false;
  holders_.finish();
  return true;
}

RecordingSession::End Recordings::finish(const std::string& reason) {
  const auto patience = std::chrono::steady_clock::now() + kDrainPatience;
  while (!drain() && std::chrono::steady_clock::now() < patience) std::this_thread::sleep_for(5ms);
  if (pods_) pods_->stop();
  return file_ ? file_->finish(reason) : RecordingSession::End{};
}

}  // namespace ingero::app
