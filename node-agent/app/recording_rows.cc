// SPDX-License-Identifier: Apache-2.0
#include "app/recording_rows.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/utsname.h>

#include <array>

#include "app/version.h"
#include "base/text_file.h"

namespace ingero::app {
namespace {

// By their numbers in the kernel (net/tcp_states.h).
constexpr std::array kTcpStates = {
    "unknown", "ESTABLISHED", "SYN_SENT", "SYN_RECV", "FIN_WAIT1", "FIN_WAIT2",   "TIME_WAIT",
    "CLOSE",   "CLOSE_WAIT",  "LAST_ACK", "LISTEN",   "CLOSING",   "NEW_SYN_RECV"};

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

record::RecordingFacts facts_of(const Agent& agent) {
  record::RecordingFacts facts;
  utsname names{};
  if (::uname(&names) == 0) {
    facts.host = names.nodename;
    facts.kernel = names.release;
    facts.architecture = names.machine;
  }
  facts.agent_version = fmt::format("{} ({})", kVersion, kRevision);
  facts.attach_method = model::to_string(agent.method());
  return facts;
}

}  // namespace

record::TcpEvent tcp_row(const Clock& clock, const tcp_event& event,
                         std::optional<model::CgroupId> owner) {
  record::TcpEvent row;
  row.unix_ns = static_cast<std::int64_t>(clock.unix_from_monotonic(event.header.time_ns));
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
  return row;
}

record::SchedEvent wait_row(const Clock& clock, const wait_event& event) {
  record::SchedEvent row;
  row.unix_ns = static_cast<std::int64_t>(clock.unix_from_monotonic(event.header.time_ns));
  row.duration_ns = event.wait_ns;
  row.off_cpu = event.header.kind == EVENT_OFF_CPU;
  row.state = sleep_state_of(event.sleep_state);
  row.cpu = event.cpu;
  row.tid = event.header.tid;
  row.process = {event.header.tgid, event.header.process_start_ns};
  row.cgroup_id = event.header.cgroup_id;
  return row;
}

record::RecorderOptions recorder_options(const Agent& agent) {
  record::RecorderOptions options;
  options.facts = facts_of(agent);
  options.container_of = [&agent](std::uint64_t cgroup) {
    const auto workload = agent.workload_of(static_cast<model::CgroupId>(cgroup));
    return record::ContainerNames{workload.k8s_namespace, workload.pod, workload.container};
  };
  options.command_of = command_of;
  return options;
}

}  // namespace ingero::app
