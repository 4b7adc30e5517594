// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/unique_fd.h"

namespace ingero::discover {

/// How a file that another process has mapped is reached. Neither can lead to a file of the host
/// that the process itself does not reach.
enum class OpenMethod {
  /// /proc/PID/map_files/START-END: the very file of the mapping, also when it was deleted or
  /// renamed.
  /// Needs CAP_CHECKPOINT_RESTORE (5.9+) or CAP_SYS_ADMIN.
  kMapFiles,
  /// The path below /proc/PID/root, symlinks resolved as in a chroot (openat2, 5.6+). Needs
  /// CAP_SYS_PTRACE. The path may name another file by now: compare identities afterwards.
  kProcRoot,
};

/// Opens a mapped file of process `pid` for reading. `vm_start` and `vm_end` are the mapping's
/// addresses (kMapFiles), `path` is its path as the process sees it, with its raw bytes and not
/// with the escapes of /proc/PID/maps (kProcRoot; in errors for both). `proc_root` is where procfs
/// is.
///
/// Regular files only: the type is checked on an O_PATH descriptor first, so that a FIFO or a
/// device is never opened and nothing can block. Errors name operation, object, cause and hint;
/// `code` is the errno (ENOENT, ESRCH: the process or the mapping is gone).
Result<UniqueFd> open_mapped_file(pid_t pid, std::uint64_t vm_start, std::uint64_t vm_end,
                                  std::string_view path, OpenMethod method,
                                  const std::string& proc_root = "/proc");

/// `path` for logs, labels and JSON: always valid UTF-8 on one line. Control characters become \n,
/// \t or \xNN, bytes that are not UTF-8 \xNN, the backslash \\.
std::string escape_path(std::string_view path);

}  // namespace ingero::discover
