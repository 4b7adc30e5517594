// SPDX-License-Identifier: Apache-2.0
#include "app/recording_session.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <array>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "app/version.h"
#include "base/text.h"
#include "base/text_file.h"

namespace ingero::app {
namespace {

using namespace std::chrono_literals;

constexpr auto kStateInterval = 2s;
constexpr auto kDrainPatience = 10s;

// By their numbers in the kernel (net/tcp_states.h).
constexpr std::array kTcpStates = {
    "unknown", "ESTABLISHED", "SYN_SENT", "SYN_RECV", "FIN_WAIT1", "FIN_WAIT2",   "TIME_WAIT",
    "CLOSE",   "CLOSE_WAIT",  "LAST_ACK", "LISTEN",   "CLOSING",   "NEW_SYN_RECV"};

/// Who called sudo: the recording is for them to read.
std::optional<std::pair<uid_t, gid_t>> owner_of_recording() {
  const char* uid = ::getenv("SUDO_UID");
  const char* gid = ::getenv("SUDO_GID");
  if (::geteuid() != 0 || uid == nullptr || gid == nullptr) return std::nullopt;
  return std::pair{static_cast<uid_t>(std::strtoul(uid, nullptr, 10)),
                   static_cast<gid_t>(std::strtoul(gid, nullptr, 10))};
}

std::optional<std::string> command_of(const model::ProcessKey& process) {
  auto text = read_text_file(fmt::format("/proc/{}/comm", process.tgid), 256, "read command");
  if (!text) return std::nullopt;
  while (text->ends_with('\n')) text->pop_back();
  return *text;
}

record::SleepState sleep_state_of(std::uint32_t state) {
  switch (state) {
    case SLEEP_INTERRUPTIBLE: return record::SleepState::kInterruptible;
    case SLEEP_UNINTERRUPTIBLE: return record::SleepState::kUninterruptible;
    case SLEEP_STOPPED: return record::SleepState::kStopped;
    default: return record::SleepState::kUnknown;
  }
}

record::RecordingFacts facts_of(const Agent& agent, const RecordingOptions& options) {
  record::RecordingFacts facts;
  utsname names{};
  if (::uname(&names) == 0) {
    facts.host = names.nodename;
    facts.kernel = names.release;
    facts.architecture = names.machine;
  }
  facts.agent_version = fmt::format("{} ({})", kVersion, kRevision);
  facts.attach_method = model::to_string(agent.method());
  facts.selection = options.selection;
  facts.wait_threshold_ns = options.wait_threshold.count();
  facts.off_cpu_threshold_ns = options.off_cpu_threshold.count();
  return facts;
}

}  // namespace

Result<std::unique_ptr<RecordingSession>> RecordingSession::start(boost::asio::io_context& io,
                                                                  Agent& agent,
                                                                  const RecordingOptions& options) {
  std::unique_ptr<RecordingSession> session(new RecordingSession(io, agent, options.path));
  record::RecorderOptions wanted;
  wanted.path = options.path;
  wanted.facts = facts_of(agent, options);
  wanted.owner = owner_of_recording();
  wanted.max_bytes = options.max_bytes;
  wanted.container_of = [&agent](std::uint64_t cgroup) {
    const auto workload = agent.workload_of(static_cast<model::CgroupId>(cgroup));
    return record::ContainerNames{workload.k8s_namespace, workload.pod, workload.container};
  };
  wanted.command_of = command_of;
  auto recorder = record::Recorder::create(std::move(wanted), agent.clock());
  if (!recorder) return fail(recorder.error());
  session->recorder_ = std::move(*recorder);
  session->tell_state();
  return session;
}

void RecordingSession::add(const tcp_event& event, std::optional<model::CgroupId> owner) {
  record::TcpEvent row;
  row.unix_ns = static_cast<std::int64_t>(agent_.clock().unix_from_monotonic(event.header.time_ns));
  row.event = event.what == TCP_RETRANSMIT_SYNACK ? "tcp_retransmit_synack" : "tcp_retransmit_skb";
  const auto text = [&](const __u32* address) {
    std::array<char, INET6_ADDRSTRLEN> buffer{};
    return std::string(
        ::inet_ntop(event.family, address, buffer.data(), buffer.size()) ? buffer.data() : "");
  };
  row.saddr = text(event.source);
  row.daddr = text(event.destination);
  row.sport = event.source_port;
  row.dport = event.destination_port;
  row.seq = event.seq;
  row.state = event.state < kTcpStates.size() ? kTcpStates[event.state] : "unknown";
  row.netns = event.netns;
  if (owner) row.cgroup_id = model::to_number(*owner);
  holders_.find(event.socket_inode, event.header.time_ns,
                [this, row = std::move(row)](std::optional<model::ProcessKey> process) {
                  record::TcpEvent attributed = row;
                  attributed.process = process;
                  recorder_->add(std::move(attributed));
                });
}

void RecordingSession::add(const wait_event& event) {
  record::SchedEvent row;
  row.unix_ns = static_cast<std::int64_t>(agent_.clock().unix_from_monotonic(event.header.time_ns));
  row.duration_ns = event.wait_ns;
  row.off_cpu = event.header.kind == EVENT_OFF_CPU;
  row.state = sleep_state_of(event.sleep_state);
  row.cpu = event.cpu;
  row.tid = event.header.tid;
  row.process = {event.header.tgid, event.header.process_start_ns};
  row.cgroup_id = event.header.cgroup_id;
  recorder_->add(row);
}

void RecordingSession::tell_state() {
  recorder_->update(agent_.snapshot());
  timer_.expires_after(kStateInterval);
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) tell_state();
  });
}

RecordingSession::End RecordingSession::finish(const std::string& reason) {
  const auto patience = std::chrono::steady_clock::now() + kDrainPatience;
  while (!agent_.drain_calls() && std::chrono::steady_clock::now() < patience)
    std::this_thread::sleep_for(5ms);  // the writer is behind
  holders_.finish();
  recorder_->update(agent_.snapshot());
  const record::RecorderStatus status = recorder_->finish(reason);
  End end;
  end.complete = status.stopped.empty() && status.trouble.empty();
  const std::uint64_t calls = status.nccl_calls + status.cuda_calls;
  end.text = fmt::format("recorded: {} NCCL and {} CUDA calls in {} ({}",
                         format_count(status.nccl_calls), format_count(status.cuda_calls),
                         escape_terminal(path_), format_bytes(static_cast<double>(status.bytes)));
  if (calls != 0)
    end.text += fmt::format(", {:.0f} bytes per call",
                            static_cast<double>(status.bytes) / static_cast<double>(calls));
  end.text += ")\n";
  std::string lost;
  for (const auto& [name, count] : status.losses)
    if (count != 0)
      lost += fmt::format("{}{} {}", lost.empty() ? "" : ", ", format_count(count), name);
  end.text += fmt::format("lost while recording: {}\n", lost.empty() ? "0" : lost);
  if (!end.complete) end.text += fmt::format("recording ended early: {}\n", status.trouble);
  return end;
}

}  // namespace ingero::app
