// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace ingero::workload {

// From here on this process may read, write, exit, exit_group, rt_sigreturn, brk, mmap, munmap and
// futex; any other system call kills it. Exits with a message where the kernel refuses the filter.
void install_strict_filter();

}  // namespace ingero::workload
