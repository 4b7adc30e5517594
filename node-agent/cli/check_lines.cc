// SPDX-License-Identifier: Apache-2.0
#include "cli/check_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

namespace ingero::cli {
namespace {

// From here on BPF memory is no longer under RLIMIT_MEMLOCK.
constexpr KernelVersion kMemcgAccountingKernel{5, 11};
constexpr std::string_view kModeSentence =
    "unprivileged mode means kernel 6.6 or newer with multi or session attach; on older kernels "
    "perf uprobes need CAP_SYS_ADMIN";

struct Capability {
  unsigned number;
  std::string_view name;
  bool in_sys_admin;  ///< the kernel takes CAP_SYS_ADMIN instead
  Verdict missing;
  std::string_view purpose;
};

constexpr unsigned kBpf = 39;
constexpr unsigned kPerfmon = 38;
constexpr unsigned kSysResource = 24;

// CAP_SYS_ADMIN has rules of its own: see mode_line().
constexpr std::array<Capability, 5> kCapabilities{{
    {kBpf, "CAP_BPF", true, Verdict::kBlocked, "loads the BPF programs and maps"},
    {kPerfmon, "CAP_PERFMON", true, Verdict::kBlocked, "attaches BPF programs to functions"},
    {19, "CAP_SYS_PTRACE", false, Verdict::kDegraded,
     "opens libraries through /proc/PID/root of other users' processes: theirs are not traced"},
    {2, "CAP_DAC_READ_SEARCH", false, Verdict::kDegraded,
     "reads libraries below private folders, such as a venv in a 0700 home: those are not traced"},
    {40, "CAP_CHECKPOINT_RESTORE", true, Verdict::kDegraded,
     "opens /proc/PID/map_files: libraries whose path is gone or hidden are not traced"},
}};

bool any_works(const std::vector<AttachMethodResult>& methods) {
  return std::any_of(methods.begin(), methods.end(),
                     [](const AttachMethodResult& result) { return result.works; });
}

/// With CAP_SYS_ADMIN every method is open; without it only those of newer kernels.
CheckLine mode_line(const HostFacts& facts, const std::vector<AttachMethodResult>& methods) {
  CheckLine line{"privileges", "", Verdict::kOk, std::string(kModeSentence)};
  if (!facts.capabilities) {
    line.value = "not known";
    line.verdict = Verdict::kDegraded;
    line.hint = "the capabilities could not be read from /proc/self/status";
    return line;
  }
  if (holds(*facts.capabilities, kSysAdmin)) {
    line.value = "privileged (CAP_SYS_ADMIN)";
    return line;
  }
  line.value = "unprivileged (no CAP_SYS_ADMIN)";
  const KernelVersion version = parse_kernel_version(facts.kernel_release);
  // What was seen to work counts more than a version.
  const bool too_old = version.major != 0 && version < kMultiKernel && !any_works(methods);
  if (too_old) line.verdict = Verdict::kBlocked;
  return line;
}

/// "3 processes"
std::string counted(std::size_t count, std::string_view one, std::string_view many) {
  return fmt::format("{} {}", count, count == 1 ? one : many);
}

std::string library_name(const model::Library& library) {
  std::string name(model::to_string(library.kind));
  if (!library.version.empty()) name += " " + library.version;
  return name;
}

/// "nccl 2.28.9 (24 probes)", "cudart 13.0 (found)", "nccl (refused)"
std::string library_state(const model::Library& library) {
  if (!library.reason.empty()) return library_name(library) + " (refused)";
  if (library.probes.empty()) return library_name(library) + " (found)";
  return fmt::format("{} ({})", library_name(library),
                     counted(library.probes.size(), "probe", "probes"));
}

CheckLine process_line(const model::Process& process,
                       const std::map<model::FileKey, const model::Library*>& libraries) {
  CheckLine line{"process", fmt::format("{} {}:", process.key.tgid, process.comm), Verdict::kOk,
                 ""};
  const char* separator = " ";
  for (const model::FileKey& file : process.libraries) {
    const auto found = libraries.find(file);
    if (found == libraries.end()) continue;
    line.value += separator + library_state(*found->second);
    separator = ", ";
  }
  return line;
}

}  // namespace

std::vector<CheckLine> capability_lines(const HostFacts& facts,
                                        const std::vector<AttachMethodResult>& methods) {
  std::vector<CheckLine> lines{mode_line(facts, methods)};
  if (!facts.capabilities) return lines;
  const std::uint64_t bits = *facts.capabilities;
  const bool admin = holds(bits, kSysAdmin);
  std::string held = admin ? "CAP_SYS_ADMIN" : "";
  std::vector<CheckLine> missing;
  for (const Capability& capability : kCapabilities) {
    if (holds(bits, capability.number)) {
      held.append(held.empty() ? "" : " ").append(capability.name);
    } else if (!admin || !capability.in_sys_admin) {
      missing.push_back(CheckLine{"missing capability", std::string(capability.name),
                                  capability.missing, std::string(capability.purpose)});
    }
  }
  const KernelVersion version = parse_kernel_version(facts.kernel_release);
  if (version.major != 0 && version < kMemcgAccountingKernel && !holds(bits, kSysResource)) {
    missing.push_back(CheckLine{"missing capability", "CAP_SYS_RESOURCE", Verdict::kBlocked,
                                "lifts RLIMIT_MEMLOCK, which BPF maps fall under on this kernel"});
  }
  lines.push_back(CheckLine{"capabilities", held.empty() ? "none of those needed" : held});
  std::move(missing.begin(), missing.end(), std::back_inserter(lines));
  return lines;
}

std::vector<CheckLine> method_lines(const std::vector<AttachMethodResult>& methods) {
  if (methods.empty()) {
    return {CheckLine{"attach", "not tried", Verdict::kDegraded,
                      "whether functions can be probed is known only by trying it, as root"}};
  }
  const bool any = any_works(methods);
  const bool returns =
      std::any_of(methods.begin(), methods.end(), [](const AttachMethodResult& result) {
        return result.works && result.method != "entry_only";
      });
  std::vector<CheckLine> lines;
  for (const AttachMethodResult& result : methods) {
    CheckLine line{"attach " + result.method, result.works ? "works" : "does not work",
                   Verdict::kOk, result.detail};
    if (!result.works && !any) line.verdict = Verdict::kBlocked;
    if (result.works && !returns) {
      line.verdict = Verdict::kDegraded;
      line.hint = "calls are counted at their entry only, without result and duration";
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

std::vector<CheckLine> library_lines(const model::Snapshot& snapshot) {
  std::vector<CheckLine> lines;
  if (snapshot.processes.empty() && snapshot.libraries.empty()) {
    return {CheckLine{"libraries", "none: no process maps libnccl, libcudart or libcuda yet"}};
  }
  std::map<model::FileKey, const model::Library*> libraries;
  for (const model::Library& library : snapshot.libraries)
    libraries.emplace(library.file, &library);
  lines.push_back(CheckLine{
      "libraries", fmt::format("{} in {}", counted(snapshot.libraries.size(), "file", "files"),
                               counted(snapshot.processes.size(), "process", "processes"))});
  for (const model::Process& process : snapshot.processes) {
    if (lines.size() > kMaxProcessLines) break;
    lines.push_back(process_line(process, libraries));
  }
  if (snapshot.processes.size() > kMaxProcessLines) {
    lines.push_back(CheckLine{
        "process", fmt::format("… and {} more", snapshot.processes.size() - kMaxProcessLines)});
  }
  for (const model::Library& library : snapshot.libraries) {
    if (library.reason.empty()) continue;
    lines.push_back(CheckLine{"library", library.path, Verdict::kDegraded, library.reason});
  }
  return lines;
}

}  // namespace ingero::cli
