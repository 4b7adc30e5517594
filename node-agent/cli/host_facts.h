// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ingero::cli {

/// Where the host's /proc and /sys are seen; tests pass recorded trees.
struct CheckRoots {
  std::string proc = "/proc";
  std::string sys = "/sys";
};

/// Kernel series, such as 6.12.
struct KernelVersion {
  unsigned major = 0;  ///< 0: not known
  unsigned minor = 0;
  auto operator<=>(const KernelVersion&) const = default;
};

/// The numbers in front of a release such as "6.12.43+deb12-cloud-amd64"; 0.0 for other text.
KernelVersion parse_kernel_version(std::string_view release);

enum class CgroupVersion { kNone, kV1, kV2, kHybrid };

/// From /proc/PID/mountinfo. Hybrid: v1 hierarchies with a controller, and a v2 tree beside them.
CgroupVersion parse_cgroup_version(std::string_view mountinfo);

enum class Lockdown { kUnknown, kNone, kIntegrity, kConfidentiality };

/// From "[none] integrity confidentiality": the word in brackets is in force.
Lockdown parse_lockdown(std::string_view text);

/// Effective capabilities by /proc/PID/status: one bit each; nullopt when the line is missing.
std::optional<std::uint64_t> parse_effective_capabilities(std::string_view status);

/// What the host says about itself. Nothing here is judged.
struct HostFacts {
  std::string kernel_release;  ///< empty: could not be read
  std::string architecture;    ///< as `uname -m` says it
  bool gvisor = false;
  std::string btf_error;  ///< why the kernel's BTF cannot be read; empty: it can
  std::optional<std::uint64_t> capabilities;  ///< effective, of this process; nullopt: not known
  CgroupVersion cgroups = CgroupVersion::kNone;
  Lockdown lockdown = Lockdown::kUnknown;  ///< kUnknown: securityfs not mounted, or no lockdown
  std::optional<int> perf_event_paranoid;
  std::optional<int> bpf_jit_enable;  ///< nullopt: hidden by a network namespace
};

/// Reads the facts; what cannot be read is left unknown. Never blocks, needs no privileges.
HostFacts gather_host_facts(const CheckRoots& roots, const std::string& architecture);

/// `uname -m` of this machine.
std::string machine_architecture();

}  // namespace ingero::cli
