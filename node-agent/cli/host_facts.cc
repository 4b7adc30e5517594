// SPDX-License-Identifier: Apache-2.0
#include "cli/host_facts.h"

#include <fcntl.h>
#include <sys/utsname.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "base/text_file.h"
#include "base/unique_fd.h"

namespace ingero::cli {
namespace {

constexpr std::size_t kMaxFile = 4 << 20;  // mountinfo of a node with thousands of pods
constexpr std::uint16_t kBtfMagic = 0xeb9f;

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

/// The line without its line feed; `text` moves behind it.
std::string_view next_line(std::string_view& text) {
  const std::size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

std::string_view next_word(std::string_view& text) {
  text = trimmed(text);
  const std::size_t end = text.find(' ');
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(word.size());
  return word;
}

std::string read_or_empty(const std::string& path) {
  Result<std::string> text = read_text_file(path, kMaxFile, "check the host");
  return text ? std::move(*text) : std::string();
}

std::optional<int> read_number(const std::string& path) {
  const std::string text = read_or_empty(path);
  const std::string_view digits = trimmed(text);
  int value = 0;
  const auto end = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (end.ec != std::errc() || end.ptr == digits.data()) return std::nullopt;
  return value;
}

/// Empty when the file starts as BTF does. Reads no more: it has megabytes.
std::string btf_problem(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return std::strerror(errno);
  std::uint16_t magic = 0;
  const ssize_t got = ::read(fd.get(), &magic, sizeof(magic));
  if (got < 0) return std::strerror(errno);
  if (got != sizeof(magic) || magic != kBtfMagic) return "it does not hold BTF";
  return "";
}

/// A v1 hierarchy that has a controller; "name=systemd" alone does not make a host v1.
bool has_controller(std::string_view super_options) {
  constexpr std::array<std::string_view, 4> controllers{"memory", "pids", "cpu", "cpuset"};
  while (!super_options.empty()) {
    const std::size_t comma = super_options.find(',');
    const std::string_view option = super_options.substr(0, comma);
    for (const std::string_view controller : controllers) {
      if (option == controller) return true;
    }
    super_options.remove_prefix(comma == std::string_view::npos ? super_options.size() : comma + 1);
  }
  return false;
}

}  // namespace

KernelVersion parse_kernel_version(std::string_view release) {
  KernelVersion version;
  const char* const end = release.data() + release.size();
  const auto major = std::from_chars(release.data(), end, version.major);
  if (major.ec != std::errc() || major.ptr == end || *major.ptr != '.') return {};
  const auto minor = std::from_chars(major.ptr + 1, end, version.minor);
  return minor.ec == std::errc() ? version : KernelVersion{};
}

CgroupVersion parse_cgroup_version(std::string_view mountinfo) {
  bool v1 = false;
  bool v2 = false;
  while (!mountinfo.empty()) {
    const std::string_view line = next_line(mountinfo);
    const std::size_t separator = line.find(" - ");
    if (separator == std::string_view::npos) continue;
    std::string_view rest = line.substr(separator + 3);
    const std::string_view type = next_word(rest);
    next_word(rest);  // the source of the mount
    if (type == "cgroup2") v2 = true;
    if (type == "cgroup" && has_controller(trimmed(rest))) v1 = true;
  }
  if (v1 && v2) return CgroupVersion::kHybrid;
  if (v1) return CgroupVersion::kV1;
  return v2 ? CgroupVersion::kV2 : CgroupVersion::kNone;
}

Lockdown parse_lockdown(std::string_view text) {
  const std::size_t open = text.find('[');
  const std::size_t close = text.find(']');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open) {
    return Lockdown::kUnknown;
  }
  const std::string_view word = text.substr(open + 1, close - open - 1);
  if (word == "none") return Lockdown::kNone;
  if (word == "integrity") return Lockdown::kIntegrity;
  if (word == "confidentiality") return Lockdown::kConfidentiality;
  return Lockdown::kUnknown;
}

std::optional<std::uint64_t> parse_effective_capabilities(std::string_view status) {
  constexpr std::string_view name = "CapEff:";
  while (!status.empty()) {
    std::string_view line = next_line(status);
    if (!line.starts_with(name)) continue;
    const std::string_view digits = trimmed(line.substr(name.size()));
    std::uint64_t bits = 0;
    const char* const end = digits.data() + digits.size();
    const auto parsed = std::from_chars(digits.data(), end, bits, 16);
    if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
    return bits;
  }
  return std::nullopt;
}

HostFacts gather_host_facts(const CheckRoots& roots, const std::string& architecture) {
  HostFacts facts;
  facts.kernel_release = trimmed(read_or_empty(roots.proc + "/sys/kernel/osrelease"));
  facts.architecture = architecture;
  facts.gvisor = read_or_empty(roots.proc + "/version").find("gVisor") != std::string::npos;
  facts.btf_error = btf_problem(roots.sys + "/kernel/btf/vmlinux");
  facts.capabilities = parse_effective_capabilities(read_or_empty(roots.proc + "/self/status"));
  facts.cgroups = parse_cgroup_version(read_or_empty(roots.proc + "/self/mountinfo"));
  facts.lockdown = parse_lockdown(read_or_empty(roots.sys + "/kernel/security/lockdown"));
  facts.perf_event_paranoid = read_number(roots.proc + "/sys/kernel/perf_event_paranoid");
  facts.bpf_jit_enable = read_number(roots.proc + "/sys/net/core/bpf_jit_enable");
  return facts;
}

std::string machine_architecture() {
  utsname names{};
  return ::uname(&names) == 0 ? names.machine : "";
}

}  // namespace ingero::cli
