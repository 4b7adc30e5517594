// SPDX-License-Identifier: Apache-2.0
#include "attach/uprobe_link.h"

#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <sys/syscall.h>

#include <fstream>
#include <optional>

namespace ingero::attach {
namespace {

using model::AttachMethod;

// Numbers of newer kernel headers than Debian 12's.
constexpr std::uint32_t kAttachUprobeMulti = 48;
constexpr std::uint32_t kAttachUprobeSession = 57;
constexpr std::uint32_t kMultiReturn = 1;
constexpr int kNotSupported = 524;  // ENOTSUPP of the kernel, unknown to strerror

/// The part of union bpf_attr that BPF_LINK_CREATE takes for uprobe_multi (Linux 6.6).
struct MultiLinkAttr {
  std::uint32_t prog_fd;
  std::uint32_t target_fd;
  std::uint32_t attach_type;
  std::uint32_t flags;
  std::uint64_t path;
  std::uint64_t offsets;
  std::uint64_t ref_ctr_offsets;
  std::uint64_t cookies;
  std::uint32_t count;
  std::uint32_t multi_flags;
  std::uint32_t pid;
  std::uint32_t pad;
};

/// The same for a perf event (Linux 5.15).
struct PerfLinkAttr {
  std::uint32_t prog_fd;
  std::uint32_t target_fd;
  std::uint32_t attach_type;
  std::uint32_t flags;
  std::uint64_t cookie;
};

template <typename Attr>
int link_create(const Attr& attr) {
  return static_cast<int>(::syscall(SYS_bpf, BPF_LINK_CREATE, &attr, sizeof(attr)));
}

std::uint64_t address_of(const void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); }

tl::unexpected<Error> attach_error(const std::string& path, AttachMethod method) {
  const int code = errno;
  Error error =
      Error::from_errno(code, fmt::format("attach uprobes ({})", to_string(method)), path);
  if (code == EPERM || code == EACCES) {
    error.hint = method == AttachMethod::kPerf ? "perf uprobes need CAP_SYS_ADMIN"
                                               : "needs CAP_BPF and CAP_PERFMON";
  } else if (code == kNotSupported) {
    error.cause = "the instruction there cannot be probed";
  }
  return fail(std::move(error));
}

Result<UniqueFd> multi_link(AttachMethod method, int program, std::uint32_t flags,
                            const std::string& path, std::span<const ProbeTarget> targets) {
  std::vector<std::uint64_t> offsets, cookies;
  for (const ProbeTarget& target : targets) {
    offsets.push_back(target.offset);
    cookies.push_back(target.cookie);
  }
  MultiLinkAttr attr{};
  attr.prog_fd = static_cast<std::uint32_t>(program);
  attr.attach_type = method == AttachMethod::kSession ? kAttachUprobeSession : kAttachUprobeMulti;
  attr.path = address_of(path.c_str());
  attr.offsets = address_of(offsets.data());
  attr.cookies = address_of(cookies.data());
  attr.count = static_cast<std::uint32_t>(targets.size());
  attr.multi_flags = flags;
  UniqueFd fd(link_create(attr));
  if (!fd) return attach_error(path, method);
  return fd;
}

/// Number in a one-line sysfs file such as ".../uprobe/type" or "config:0".
std::optional<std::uint32_t> sysfs_number(const char* path, std::string_view prefix) {
  std::ifstream file(path);
  std::string text;
  if (!std::getline(file, text) || !text.starts_with(prefix)) return std::nullopt;
  return static_cast<std::uint32_t>(std::atoi(text.c_str() + prefix.size()));
}

struct PerfUprobeType {
  std::uint32_t type;
  std::uint32_t return_bit;
};

Result<PerfUprobeType> perf_uprobe_type() {
  const auto type = sysfs_number("/sys/bus/event_source/devices/uprobe/type", "");
  const auto bit = sysfs_number("/sys/bus/event_source/devices/uprobe/format/retprobe", "config:");
  if (!type || !bit)
    return fail({"attach uprobes (perf)", "/sys/bus/event_source/devices/uprobe",
                 "the kernel has no perf uprobes",
                 "mount /sys, or use a kernel with uprobe events"});
  return PerfUprobeType{*type, *bit};
}

/// Two descriptors: the event and the link of the program to it.
Status perf_link(const PerfUprobeType& kind, int program, bool on_return, const std::string& path,
                 const ProbeTarget& target, UprobeLink::Descriptors& fds) {
  perf_event_attr attr{};
  attr.size = sizeof(attr);
  attr.type = kind.type;
  attr.config = on_return ? 1ULL << kind.return_bit : 0;
  attr.config1 = address_of(path.c_str());
  attr.config2 = target.offset;
  UniqueFd event(
      static_cast<int>(::syscall(SYS_perf_event_open, &attr, -1, 0, -1, PERF_FLAG_FD_CLOEXEC)));
  if (!event) return attach_error(path, AttachMethod::kPerf);
  PerfLinkAttr link{};
  link.prog_fd = static_cast<std::uint32_t>(program);
  link.target_fd = static_cast<std::uint32_t>(event.get());
  link.attach_type = BPF_PERF_EVENT;
  link.cookie = target.cookie;
  UniqueFd fd(link_create(link));
  if (!fd) return attach_error(path, AttachMethod::kPerf);
  fds.links.push_back(std::move(fd));
  fds.events.push_back(std::move(event));
  return {};
}

Status perf_links(const ProgramSet& programs, const std::string& path,
                  std::span<const ProbeTarget> targets, UprobeLink::Descriptors& fds) {
  const auto kind = perf_uprobe_type();
  if (!kind) return fail(kind.error());
  for (const bool on_return : {true, false}) {
    const int program = on_return ? programs.on_return : programs.entry;
    if (program < 0) continue;
    for (const ProbeTarget& target : targets) {
      if (auto status = perf_link(*kind, program, on_return, path, target, fds); !status)
        return status;
    }
  }
  return {};
}

Status multi_links(const ProgramSet& programs, const std::string& path,
                   std::span<const ProbeTarget> targets, bool with_return,
                   UprobeLink::Descriptors& fds) {
  if (with_return) {
    auto link = multi_link(AttachMethod::kMulti, programs.on_return, kMultiReturn, path, targets);
    if (!link) return fail(link.error());
    fds.links.push_back(std::move(*link));
  }
  auto link = multi_link(AttachMethod::kMulti, programs.entry, 0, path, targets);
  if (!link) return fail(link.error());
  fds.links.push_back(std::move(*link));
  return {};
}

/// Entry probes alone, by the better of the two mechanisms that take plain programs.
Status entry_links(const ProgramSet& programs, const std::string& path,
                   std::span<const ProbeTarget> targets, UprobeLink::Descriptors& fds) {
  const auto kind = perf_uprobe_type();
  if (!kind) return fail(kind.error());
  for (const ProbeTarget& target : targets) {
    if (auto status = perf_link(*kind, programs.entry, false, path, target, fds); !status)
      return status;
  }
  return {};
}

}  // namespace

Result<UprobeLink> UprobeLink::create(AttachMethod method, const ProgramSet& programs,
                                      const std::string& path,
                                      std::span<const ProbeTarget> targets) {
  Descriptors fds;
  Status status;
  switch (method) {
    case AttachMethod::kSession: {
      auto link = multi_link(method, programs.session, 0, path, targets);
      if (!link) return fail(link.error());
      fds.links.push_back(std::move(*link));
      break;
    }
    case AttachMethod::kMulti:
      status = multi_links(programs, path, targets, programs.on_return >= 0, fds);
      break;
    case AttachMethod::kPerf: status = perf_links(programs, path, targets, fds); break;
    case AttachMethod::kEntryOnly: status = entry_links(programs, path, targets, fds); break;
    case AttachMethod::kNone:
      status = fail(
          {"attach uprobes", path, "no attach method works on this host", "see `ingero check`"});
      break;
  }
  if (!status) return fail(status.error());
  return UprobeLink(std::move(fds));
}

}  // namespace ingero::attach
