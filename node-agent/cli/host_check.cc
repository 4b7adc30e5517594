// SPDX-License-Identifier: Apache-2.0
#include "cli/host_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "cli/check_lines.h"

namespace ingero::cli {
namespace {

constexpr KernelVersion kOldestKernel{5, 15};     // from here on perf uprobes have cookies
constexpr KernelVersion kTypedLoadsKernel{6, 1};  // iterators and typed loads under lockdown

CheckLine kernel_line(const HostFacts& facts) {
  CheckLine line{"kernel", facts.kernel_release, Verdict::kOk, ""};
  const KernelVersion version = parse_kernel_version(facts.kernel_release);
  if (version.major == 0) {
    if (line.value.empty()) line.value = "not known";
    line.verdict = Verdict::kDegraded;
    line.hint = "the release could not be read from /proc/sys/kernel/osrelease";
  } else if (version < kOldestKernel) {
    line.verdict = Verdict::kBlocked;
    line.hint = "too old: the agent needs 5.15, 6.6 or newer is best";
  } else if (version < kMultiKernel) {
    line.hint = "perf uprobes only; 6.6 or newer attaches faster and with fewer capabilities";
  }
  return line;
}

CheckLine architecture_line(const HostFacts& facts) {
  const bool known = facts.architecture == "x86_64" || facts.architecture == "aarch64";
  return CheckLine{"architecture", facts.architecture.empty() ? "not known" : facts.architecture,
                   known ? Verdict::kOk : Verdict::kBlocked,
                   known ? "" : "the agent reads arguments on x86_64 and aarch64 only"};
}

CheckLine sandbox_line(const HostFacts& facts) {
  if (!facts.gvisor) return CheckLine{"sandbox", "none", Verdict::kOk, ""};
  return CheckLine{
      "sandbox", "gVisor", Verdict::kBlocked,
      "gVisor's kernel has no eBPF: run the agent outside the sandbox (runtimeClassName "
      "of the host's runtime); calls inside gVisor pods cannot be seen"};
}

CheckLine btf_line(const HostFacts& facts) {
  if (facts.btf_error.empty()) return CheckLine{"btf", "readable", Verdict::kOk, ""};
  return CheckLine{
      "btf", fmt::format("/sys/kernel/btf/vmlinux: {}", facts.btf_error), Verdict::kBlocked,
      "needs a kernel built with CONFIG_DEBUG_INFO_BTF (those of the large distributions are, "
      "from 5.10 on), and /sys in the container"};
}

CheckLine cgroup_line(const HostFacts& facts) {
  CheckLine line{"cgroups", "", Verdict::kOk, ""};
  switch (facts.cgroups) {
    case CgroupVersion::kV2: line.value = "v2"; return line;
    case CgroupVersion::kV1: line.value = "v1"; return line;
    case CgroupVersion::kHybrid: line.value = "hybrid (v1 and v2)"; return line;
    case CgroupVersion::kNone: break;
  }
  line.value = "none mounted";
  line.verdict = Verdict::kDegraded;
  line.hint = "calls are counted but not attributed to containers: mount the host's /sys/fs/cgroup";
  return line;
}

CheckLine lockdown_line(const HostFacts& facts) {
  CheckLine line{"lockdown", "", Verdict::kOk, ""};
  switch (facts.lockdown) {
    case Lockdown::kUnknown:
      line.value = "not known";
      line.hint = "securityfs is not mounted here, or the kernel has no lockdown";
      return line;
    case Lockdown::kNone: line.value = "none"; return line;
    case Lockdown::kIntegrity: line.value = "integrity"; return line;
    case Lockdown::kConfidentiality: break;
  }
  line.value = "confidentiality";
  const bool typed_loads = parse_kernel_version(facts.kernel_release) >= kTypedLoadsKernel;
  line.verdict = typed_loads ? Verdict::kDegraded : Verdict::kBlocked;
  line.hint =
      typed_loads
          ? "helpers may not read the kernel's memory: the container of a process that ends before "
            "the agent looks, and the segments of a retransmission, may be unknown; boot with "
            "lockdown=integrity"
          : "BPF may not read kernel memory: boot with lockdown=integrity, or use 6.1 or newer";
  return line;
}

CheckLine paranoid_line(const HostFacts& facts) {
  CheckLine line{"perf_event_paranoid", "not known", Verdict::kOk, ""};
  if (!facts.perf_event_paranoid) {
    line.hint = "/proc/sys/kernel/perf_event_paranoid cannot be read";
    return line;
  }
  const int level = *facts.perf_event_paranoid;
  line.value = fmt::to_string(level);
  // CAP_SYS_ADMIN is above the setting. Levels over 2 are a distribution's own.
  if (level <= 2 || !facts.capabilities || holds(*facts.capabilities, kSysAdmin)) return line;
  line.verdict = Verdict::kDegraded;
  line.hint =
      "without CAP_SYS_ADMIN there may be no perf events, so a library that is loaded late may "
      "be noticed by the next scan only: sysctl -w kernel.perf_event_paranoid=2";
  return line;
}

CheckLine jit_line(const HostFacts& facts) {
  CheckLine line{"bpf_jit", "not known", Verdict::kOk, ""};
  if (!facts.bpf_jit_enable) {
    line.hint = "net.core.bpf_jit_enable is seen in the host's network namespace only";
  } else if (*facts.bpf_jit_enable == 0) {
    line.value = "off";
    line.verdict = Verdict::kDegraded;
    line.hint =
        "BPF programs are interpreted, each traced call costs more: "
        "sysctl -w net.core.bpf_jit_enable=1";
  } else {
    line.value = "on";
  }
  return line;
}

CheckLine seccomp_line(SeccompSafety seccomp) {
  CheckLine line{"seccomp", "", Verdict::kOk, ""};
  switch (seccomp) {
    case SeccompSafety::kNotTested:
      line.value = "not tried";
      line.hint = "whether return probes are safe for targets under a strict seccomp filter";
      return line;
    case SeccompSafety::kSafe: line.value = "return probes are safe"; return line;
    case SeccompSafety::kUnsafe: break;
  }
  line.value = "return probes kill targets under a strict filter";
  line.verdict = Verdict::kDegraded;
  line.hint =
      "calls are counted at their entry only, without result and duration: update the kernel";
  return line;
}

/// The last word: all that stands above it is why, or what else there is to say.
std::vector<CheckLine> start_lines(const StartResult& start) {
  if (!start.tried) return {};
  if (start.error.empty()) return {CheckLine{"start", "works", Verdict::kOk, ""}};
  return {CheckLine{"start", start.error, Verdict::kBlocked, start.hint}};
}

void append(std::vector<CheckLine>& lines, std::vector<CheckLine> more) {
  std::move(more.begin(), more.end(), std::back_inserter(lines));
}

}  // namespace

std::string_view to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk: return "ok";
    case Verdict::kDegraded: return "degraded";
    case Verdict::kBlocked: return "blocked";
  }
  return "blocked";
}

Verdict CheckReport::verdict() const {
  Verdict worst = Verdict::kOk;
  for (const CheckLine& line : lines) worst = std::max(worst, line.verdict);
  return worst;
}

int CheckReport::exit_status() const {
  switch (verdict()) {
    case Verdict::kOk: return 0;
    case Verdict::kDegraded: return 1;
    case Verdict::kBlocked: return 2;
  }
  return 2;
}

CheckReport check_host(const CheckInput& input) {
  const HostFacts& facts = input.facts;
  CheckReport report;
  report.lines = {kernel_line(facts), architecture_line(facts), sandbox_line(facts),
                  btf_line(facts)};
  append(report.lines, capability_lines(facts, input.methods));
  append(report.lines,
         {cgroup_line(facts), lockdown_line(facts), paranoid_line(facts), jit_line(facts)});
  append(report.lines, method_lines(input.methods));
  report.lines.push_back(seccomp_line(input.seccomp));
  append(report.lines, start_lines(input.start));
  if (input.snapshot != nullptr) append(report.lines, library_lines(*input.snapshot));
  return report;
}

}  // namespace ingero::cli
