// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/check_report.h"
#include "cli/host_check.h"

namespace ingero::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr const char* kAllCapabilities = "000001ffffffffff";
// BPF, PERFMON, SYS_PTRACE, DAC_READ_SEARCH, CHECKPOINT_RESTORE
constexpr const char* kFiveCapabilities = "000001c000080004";

/// A /proc and a /sys in a temporary folder: a host on which everything is fine.
class HostCheck : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "ingero_check_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    roots_ = CheckRoots{root_ + "/proc", root_ + "/sys"};
    set_kernel("6.12.43+deb12-cloud-amd64");
    set_capabilities(kAllCapabilities);
    write("proc/version",
          "Linux version 6.12.43+deb12-cloud-amd64 (debian-kernel@lists.debian.org)\n");
    write("proc/self/mountinfo",
          "25 30 0:23 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n");
    write("proc/sys/kernel/perf_event_paranoid", "3\n");
    write("proc/sys/net/core/bpf_jit_enable", "1\n");
    write("sys/kernel/btf/vmlinux", std::string("\x9f\xeb\x01\x00", 4));
    write("sys/kernel/security/lockdown", "[none] integrity confidentiality\n");
  }
  void TearDown() override {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }

  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path full = std::filesystem::path(root_) / path;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full, std::ios::binary) << text;
  }
  void remove(const std::string& path) {
    std::filesystem::remove(std::filesystem::path(root_) / path);
  }
  void set_kernel(const std::string& release) {
    write("proc/sys/kernel/osrelease", release + "\n");
  }
  void set_capabilities(const std::string& bits) {
    write("proc/self/status", "Name:\tingero\nCapPrm:\t" + bits + "\nCapEff:\t" + bits + "\n");
  }

  CheckReport check() {
    input_.facts = gather_host_facts(roots_, architecture_);
    return check_host(input_);
  }
  /// The value and hint of the first line of this name, with its verdict in front.
  static std::string line(const CheckReport& report, std::string_view name) {
    for (const CheckLine& entry : report.lines) {
      if (entry.name == name) {
        return fmt::format("{}: {} | {}", to_string(entry.verdict), entry.value, entry.hint);
      }
    }
    return "";
  }
  static std::vector<std::string> problems(const CheckReport& report) {
    std::vector<std::string> names;
    for (const CheckLine& entry : report.lines) {
      if (entry.verdict != Verdict::kOk) names.push_back(entry.name);
    }
    return names;
  }

  std::string root_;
  CheckRoots roots_;
  std::string architecture_ = "x86_64";
  CheckInput input_{
      {},
      {{"session", false, "kernel 6.13 or newer"}, {"multi", true, ""}, {"perf", true, ""}},
      SeccompSafety::kSafe,
      nullptr,
      {}};
};

TEST_F(HostCheck, AllFine) {
  const CheckReport report = check();
  EXPECT_THAT(problems(report), testing::IsEmpty());
  EXPECT_EQ(report.exit_status(), 0);
  EXPECT_EQ(line(report, "kernel"), "ok: 6.12.43+deb12-cloud-amd64 | ");
  EXPECT_EQ(line(report, "cgroups"), "ok: v2 | ");
  EXPECT_EQ(line(report, "lockdown"), "ok: none | ");
  EXPECT_THAT(line(report, "attach session"), HasSubstr("ok: does not work | kernel 6.13"));
}

TEST_F(HostCheck, NoBtf) {
  remove("sys/kernel/btf/vmlinux");
  CheckReport report = check();
  EXPECT_THAT(problems(report), testing::ElementsAre("btf"));
  EXPECT_EQ(report.exit_status(), 2);
  EXPECT_THAT(line(report, "btf"),
              HasSubstr("No such file or directory | needs a kernel built with "
                        "CONFIG_DEBUG_INFO_BTF"));
  write("sys/kernel/btf/vmlinux", "x");
  EXPECT_THAT(line(check(), "btf"),
              HasSubstr("blocked: /sys/kernel/btf/vmlinux: it does not hold BTF"));
}

TEST_F(HostCheck, NotRoot) {
  set_capabilities("0000000000000000");
  input_.methods = {};
  const CheckReport report = check();
  EXPECT_EQ(report.exit_status(), 2);
  EXPECT_THAT(
      line(report, "privileges"),
      HasSubstr("unprivileged mode means kernel 6.6 or newer with multi or session attach"));
  const std::string text = render_check(report, 0, false);
  for (const char* name : {"CAP_BPF", "CAP_PERFMON", "CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH",
                           "CAP_CHECKPOINT_RESTORE"}) {
    EXPECT_THAT(text, HasSubstr(name));
  }
  EXPECT_THAT(text, HasSubstr("/proc/PID/map_files"));
  EXPECT_THAT(text, HasSubstr("blocked: the agent cannot work here"));
}

TEST_F(HostCheck, UnprivilegedModeWorksFromKernel66) {
  set_capabilities(kFiveCapabilities);
  write("proc/sys/kernel/perf_event_paranoid", "2\n");
  EXPECT_EQ(check().exit_status(), 0);
  set_kernel("6.1.0-44-cloud-amd64");
  input_.methods = {};
  CheckReport report = check();
  EXPECT_EQ(report.exit_status(), 2);
  EXPECT_THAT(line(report, "privileges"), HasSubstr("blocked: unprivileged"));
  input_.methods = {{"perf", true, ""}};  // paranoid 1 and an old stable kernel: seen to work
  EXPECT_EQ(check().exit_status(), 0);
}

TEST_F(HostCheck, ParanoidLevelMattersOnlyWithoutSysAdmin) {
  write("proc/sys/kernel/perf_event_paranoid", "4\n");
  EXPECT_EQ(check().exit_status(), 0);
  set_capabilities(kFiveCapabilities);
  EXPECT_THAT(problems(check()), testing::ElementsAre("perf_event_paranoid"));
}

TEST_F(HostCheck, SysAdminDoesNotReplacePtrace) {
  set_capabilities("0000000000200000");  // CAP_SYS_ADMIN alone
  const CheckReport report = check();
  EXPECT_THAT(problems(report), testing::ElementsAre("missing capability", "missing capability"));
  EXPECT_THAT(line(report, "missing capability"), HasSubstr("CAP_SYS_PTRACE"));
  EXPECT_EQ(report.exit_status(), 1);
}

TEST_F(HostCheck, LockdownConfidentiality) {
  write("sys/kernel/security/lockdown", "none integrity [confidentiality]\n");
  CheckReport report = check();
  EXPECT_THAT(problems(report), testing::ElementsAre("lockdown"));
  EXPECT_EQ(report.exit_status(), 1);
  EXPECT_THAT(line(report, "lockdown"), HasSubstr("boot with lockdown=integrity"));
  set_kernel("5.15.0-100-generic");
  EXPECT_EQ(check().exit_status(), 2);
  write("sys/kernel/security/lockdown", "none [integrity] confidentiality\n");
  EXPECT_EQ(check().exit_status(), 0);
}

TEST_F(HostCheck, SecurityfsThatIsNotMountedIsNoProblem) {
  remove("sys/kernel/security/lockdown");
  const CheckReport report = check();
  EXPECT_EQ(line(report, "lockdown"),
            "ok: not known | securityfs is not mounted here, or the kernel has no lockdown");
  EXPECT_EQ(report.exit_status(), 0);
}

TEST_F(HostCheck, KernelTooOld) {
  set_kernel("4.18.0-553.el8_10.x86_64");
  CheckReport report = check();
  EXPECT_EQ(report.exit_status(), 2);
  EXPECT_EQ(
      line(report, "kernel"),
      "blocked: 4.18.0-553.el8_10.x86_64 | too old: the agent needs 5.15, 6.6 or newer is best");
  set_kernel("5.10.0-46-cloud-amd64");
  EXPECT_EQ(check().exit_status(), 2);
  set_kernel("5.15.0-100-generic");
  EXPECT_EQ(check().exit_status(), 0);
  set_kernel("nonsense");
  EXPECT_EQ(check().exit_status(), 1);
}

TEST_F(HostCheck, GVisor) {
  set_kernel("4.4.0");
  write("proc/version",
        "Linux version 4.4.0 (root@localhost) (gVisor) #1 SMP Sun Jan 10 15:06:54 PST\n");
  remove("sys/kernel/btf/vmlinux");
  const CheckReport report = check();
  EXPECT_EQ(report.exit_status(), 2);
  EXPECT_THAT(line(report, "sandbox"), HasSubstr("blocked: gVisor | gVisor's kernel has no eBPF"));
}

TEST_F(HostCheck, NothingCanBeRead) {
  roots_ = CheckRoots{root_ + "/no_proc", root_ + "/no_sys"};
  architecture_ = "";
  input_ = CheckInput{};
  const CheckReport report = check();
  EXPECT_EQ(report.exit_status(), 2);
  EXPECT_THAT(line(report, "kernel"), HasSubstr("degraded: not known"));
  EXPECT_THAT(line(report, "attach"), HasSubstr("degraded: not tried"));
}

TEST_F(HostCheck, AttachMethodsDecide) {
  input_.methods = {{"session", false, "no"}, {"multi", false, "no"}, {"perf", false, "EACCES"}};
  EXPECT_EQ(check().exit_status(), 2);
  input_.methods.push_back({"entry_only", true, ""});
  CheckReport report = check();
  EXPECT_EQ(report.exit_status(), 1);
  EXPECT_THAT(line(report, "attach entry_only"), HasSubstr("without result and duration"));
}

TEST_F(HostCheck, WhatAStartSaysIsTheLastWord) {
  input_.start = {true, "", ""};
  EXPECT_EQ(line(check(), "start"), "ok: works | ");
  input_.start = {true, "load BPF programs: the kernel's verifier refuses cuda_copy_entry",
                  "report"};
  const CheckReport report = check();
  EXPECT_EQ(report.exit_status(), 2);
  EXPECT_EQ(line(report, "start"),
            "blocked: load BPF programs: the kernel's verifier refuses cuda_copy_entry | report");
}

TEST_F(HostCheck, UnsafeReturnProbesAreDegraded) {
  input_.seccomp = SeccompSafety::kUnsafe;
  EXPECT_THAT(problems(check()), testing::ElementsAre("seccomp"));
}

TEST_F(HostCheck, OtherArchitecture) {
  architecture_ = "riscv64";
  EXPECT_THAT(problems(check()), testing::ElementsAre("architecture"));
  architecture_ = "aarch64";
  EXPECT_EQ(check().exit_status(), 0);
}

TEST_F(HostCheck, InterpretedProgramsAreDegraded) {
  write("proc/sys/net/core/bpf_jit_enable", "0\n");
  EXPECT_THAT(problems(check()), testing::ElementsAre("bpf_jit"));
  remove("proc/sys/net/core/bpf_jit_enable");
  EXPECT_EQ(check().exit_status(), 0) << "hidden in a pod's network namespace";
}

TEST_F(HostCheck, LibrariesWithReasons) {
  model::Snapshot snapshot;
  input_.snapshot = &snapshot;
  EXPECT_THAT(line(check(), "libraries"), HasSubstr("no process maps libnccl"));
  model::Library nccl;
  nccl.file.inode = 1;
  nccl.path = "/venv/libnccl.so.2";
  nccl.kind = model::LibraryKind::kNccl;
  nccl.version = "2.28.9";
  nccl.probes.resize(24);
  model::Library cudart;
  cudart.file.inode = 2;
  cudart.path = "/venv/libcudart.so.13";
  cudart.kind = model::LibraryKind::kCudart;
  cudart.reason = "not a regular file";
  snapshot.libraries = {nccl, cudart};
  snapshot.processes = {{{812, 1}, {}, "python3", {nccl.file, cudart.file}}};
  const CheckReport report = check();
  EXPECT_EQ(line(report, "process"),
            "ok: 812 python3: nccl 2.28.9 (24 probes), cudart (refused) | ");
  EXPECT_EQ(line(report, "library"), "degraded: /venv/libcudart.so.13 | not a regular file");
  EXPECT_EQ(report.exit_status(), 1);
  for (std::uint32_t i = 0; i < 99; ++i) snapshot.processes.push_back({{1000 + i, 1}, {}, "p", {}});
  EXPECT_THAT(render_check(check(), 80, false), HasSubstr("… and 80 more"));
}

TEST_F(HostCheck, JsonParsesWhateverProcessesAreCalled) {
  model::Snapshot snapshot;
  snapshot.processes = {{{812, 1}, {}, "\xff\x1b[2J\n", {}}};
  input_.snapshot = &snapshot;
  const CheckReport report = check();
  const auto json = nlohmann::json::parse(check_json(report));
  EXPECT_EQ(json["verdict"], "ok");
  EXPECT_EQ(json["exit_status"], 0);
  EXPECT_EQ(json["lines"].size(), report.lines.size());
  EXPECT_EQ(json["lines"][0]["name"], "kernel");
  EXPECT_THAT(render_check(report, 80, false), Not(HasSubstr("\x1b")));
}

TEST(KernelVersion, Parse) {
  EXPECT_EQ(parse_kernel_version("6.12.43+deb12"), (KernelVersion{6, 12}));
  EXPECT_EQ(parse_kernel_version("7.0-rc1"), (KernelVersion{7, 0}));
  EXPECT_EQ(parse_kernel_version("10.2"), (KernelVersion{10, 2}));
  for (const char* text : {"", "6", "6.", ".5", "x.y", "99999999999.1"}) {
    EXPECT_EQ(parse_kernel_version(text), KernelVersion{}) << text;
  }
}

TEST(CgroupVersionOf, Mountinfo) {
  const std::string v2 = "31 23 0:28 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw\n";
  const std::string memory = "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
  const std::string systemd =
      "40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n";
  EXPECT_EQ(parse_cgroup_version(v2), CgroupVersion::kV2);
  EXPECT_EQ(parse_cgroup_version(v2 + systemd), CgroupVersion::kV2);
  EXPECT_EQ(parse_cgroup_version(memory + systemd), CgroupVersion::kV1);
  EXPECT_EQ(parse_cgroup_version(memory + v2), CgroupVersion::kHybrid);
  EXPECT_EQ(parse_cgroup_version("garbage\n - cgroup\n - \n"), CgroupVersion::kNone);
}

TEST(Capabilities, EffectiveLine) {
  EXPECT_EQ(parse_effective_capabilities("CapPrm:\tff\nCapEff:\t0000000000200001\n"), 0x200001U);
  EXPECT_EQ(parse_effective_capabilities("CapPrm:\tff\n"), std::nullopt);
  EXPECT_EQ(parse_effective_capabilities("CapEff:\tzz\n"), std::nullopt);
}

}  // namespace
}  // namespace ingero::cli
