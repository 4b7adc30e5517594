// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "bpf/wire.h"
#include "model/identity.h"

namespace ingero::record {

/// A call and its start in unix time.
struct RecordedCall {
  call_event event;
  std::int64_t unix_ns;
};

/// A row of tcp_events.
struct TcpEvent {
  std::int64_t unix_ns = 0;
  std::string event = "tcp_retransmit_skb";
  std::string saddr, daddr;
  std::uint16_t sport = 0, dport = 0;
  std::uint32_t seq = 0;
  std::string state;
  std::uint64_t netns = 0;
  std::optional<std::uint64_t> cgroup_id;
  std::optional<model::ProcessKey> process;
};

/// How a thread slept.
enum class SleepState { kUnknown, kInterruptible, kUninterruptible, kStopped };

/// A row of sched_events.
struct SchedEvent {
  std::int64_t unix_ns = 0;
  std::uint64_t duration_ns = 0;
  bool off_cpu = false;                     ///< else a wait for a CPU
  SleepState state = SleepState::kUnknown;  ///< of an off-CPU span
  std::uint32_t cpu = 0;
  std::uint32_t tid = 0;
  model::ProcessKey process;
  std::uint64_t cgroup_id = 0;
};

/// What stands behind a cgroup; empty: not known.
struct ContainerNames {
  std::string k8s_namespace, pod, container;
  bool operator==(const ContainerNames&) const = default;
};

}  // namespace ingero::record
