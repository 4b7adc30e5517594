// SPDX-License-Identifier: Apache-2.0
#include "program/seccomp_filter.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace ingero::workload {
namespace {

#if defined(__x86_64__)
constexpr unsigned kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr unsigned kArchitecture = AUDIT_ARCH_AARCH64;
#else
#error "name this architecture's audit number here"
#endif

sock_filter load(std::size_t offset) {
  return {BPF_LD | BPF_W | BPF_ABS, 0, 0, static_cast<unsigned>(offset)};
}

sock_filter jump_if_equal(unsigned value, unsigned char if_true, unsigned char if_false) {
  return {BPF_JMP | BPF_JEQ | BPF_K, if_true, if_false, value};
}

sock_filter answer(unsigned action) { return {BPF_RET | BPF_K, 0, 0, action}; }

}  // namespace

void install_strict_filter() {
  std::vector<sock_filter> code = {
      load(offsetof(seccomp_data, arch)), jump_if_equal(kArchitecture, 1, 0),
      answer(SECCOMP_RET_KILL_PROCESS), load(offsetof(seccomp_data, nr))};
  for (const unsigned number : {__NR_read, __NR_write, __NR_exit, __NR_exit_group,
                                __NR_rt_sigreturn, __NR_brk, __NR_mmap, __NR_munmap, __NR_futex}) {
    code.push_back(jump_if_equal(number, 0, 1));
    code.push_back(answer(SECCOMP_RET_ALLOW));
  }
  code.push_back(answer(SECCOMP_RET_KILL_PROCESS));
  const sock_fprog program{static_cast<unsigned short>(code.size()), code.data()};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0)
    return;
  std::perror("ingero_workload: install the seccomp filter");
  std::exit(3);
}

}  // namespace ingero::workload
