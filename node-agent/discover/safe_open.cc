// SPDX-License-Identifier: Apache-2.0
#include "discover/safe_open.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace ingero::discover {
namespace {

constexpr int kMaxRaces = 16;  // openat2 says EAGAIN when a rename crossed its way

std::string_view type_name(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISLNK(mode)) return "a symbolic link";
  return "of an unknown type";
}

/// Fails unless the descriptor is that of a regular file.
Status check_regular(int fd, const std::string& object) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return fail_errno("check mapped file", object);
  if (S_ISREG(info.st_mode)) return {};
  return fail(Error{"open mapped file", object,
                    fmt::format("it is {}, not a regular file", type_name(info.st_mode)), "",
                    EINVAL});
}

std::string map_files_hint(int code) {
  if (code == EPERM || code == EACCES) {
    return "map_files needs CAP_CHECKPOINT_RESTORE (Linux 5.9+) or CAP_SYS_ADMIN, and ptrace "
           "access "
           "to the process";
  }
  if (code == ENOENT || code == ESRCH) return "the process or the mapping is gone";
  return "";
}

std::string proc_root_hint(int code) {
  if (code == EPERM || code == EACCES) {
    return "needs CAP_SYS_PTRACE, and CAP_DAC_READ_SEARCH for files of other users";
  }
  if (code == ENOSYS) return "openat2 needs Linux 5.6, and a seccomp profile that allows it";
  if (code == ENOENT || code == ESRCH)
    return "the process is gone or the file was deleted or renamed";
  if (code == ELOOP) return "the path goes through a magic link or too many symbolic links";
  return "";
}

Result<UniqueFd> find_map_file(pid_t pid, std::uint64_t vm_start, std::uint64_t vm_end,
                               const std::string& object, const std::string& proc_root) {
  const std::string link =
      fmt::format("{}/{}/map_files/{:x}-{:x}", proc_root, pid, vm_start, vm_end);
  UniqueFd found(::open(link.c_str(), O_PATH | O_CLOEXEC));
  if (found) return found;
  const int code = errno;
  return fail(Error::from_errno(code, "open mapped file", fmt::format("{}, {}", link, object),
                                map_files_hint(code)));
}

Result<UniqueFd> find_below_root(pid_t pid, std::string_view path, const std::string& object,
                                 const std::string& proc_root) {
  if (!path.starts_with('/') || path.find('\0') != std::string_view::npos) {
    return fail(Error{"open mapped file", object, "not an absolute file path", "", EINVAL});
  }
  const std::string root_path = fmt::format("{}/{}/root", proc_root, pid);
  const UniqueFd root(::open(root_path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!root) {
    const int code = errno;
    return fail(
        Error::from_errno(code, "open root directory of process", root_path, proc_root_hint(code)));
  }
  struct open_how how {};
  how.flags = O_PATH | O_CLOEXEC;
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
  const std::string path_text(path);
  int code = EAGAIN;
  for (int attempt = 0; attempt < kMaxRaces && code == EAGAIN; ++attempt) {
    UniqueFd found(
        static_cast<int>(::syscall(SYS_openat2, root.get(), path_text.c_str(), &how, sizeof(how))));
    if (found) return found;
    code = errno;
  }
  return fail(Error::from_errno(code, "open mapped file", fmt::format("{}{}", root_path, object),
                                proc_root_hint(code)));
}

/// A descriptor for reading of the file that the O_PATH descriptor stands for.
Result<UniqueFd> reopen(const UniqueFd& found, const std::string& object) {
  // The agent's own procfs: the number is one of its own descriptors.
  const std::string self = fmt::format("/proc/self/fd/{}", found.get());
  UniqueFd file(::open(self.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (file) return file;
  const int code = errno;
  return fail(Error::from_errno(
      code, "open mapped file for reading", object,
      code == EACCES || code == EPERM ? "needs CAP_DAC_READ_SEARCH for files of other users" : ""));
}

/// Bytes of the UTF-8 sequence at the start of `text`; 0 when there is no valid one.
std::size_t utf8_length(std::string_view text) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = at(0);
  const std::size_t length = lead < 0x80   ? 1
                             : lead < 0xc2 ? 0
                             : lead < 0xe0 ? 2
                             : lead < 0xf0 ? 3
                             : lead < 0xf5 ? 4
                                           : 0;
  if (length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((at(i) & 0xc0) != 0x80) return 0;
  }
  if (length == 3 && ((lead == 0xe0 && at(1) < 0xa0) || (lead == 0xed && at(1) > 0x9f))) return 0;
  if (length == 4 && ((lead == 0xf0 && at(1) < 0x90) || (lead == 0xf4 && at(1) > 0x8f))) return 0;
  return length;
}

}  // namespace

Result<UniqueFd> open_mapped_file(pid_t pid, std::uint64_t vm_start, std::uint64_t vm_end,
                                  std::string_view path, OpenMethod method,
                                  const std::string& proc_root) {
  const std::string object = escape_path(path);
  Result<UniqueFd> found;
  switch (method) {
    case OpenMethod::kMapFiles:
      found = find_map_file(pid, vm_start, vm_end, object, proc_root);
      break;
    case OpenMethod::kProcRoot: found = find_below_root(pid, path, object, proc_root); break;
  }
  if (!found) return found;
  if (auto done = check_regular(found->get(), object); !done) return fail(done.error());
  auto file = reopen(*found, object);
  if (!file) return file;
  if (auto done = check_regular(file->get(), object); !done) return fail(done.error());
  return file;
}

std::string escape_path(std::string_view path) {
  std::string text;
  text.reserve(path.size());
  while (!path.empty()) {
    const auto first = static_cast<unsigned char>(path[0]);
    const std::size_t length = utf8_length(path);
    // U+0080 to U+009F are control characters too.
    const bool control =
        first < 0x20 || first == 0x7f ||
        (length == 2 && first == 0xc2 && static_cast<unsigned char>(path[1]) < 0xa0);
    if (first == '\n') {
      text += "\\n";
    } else if (first == '\t') {
      text += "\\t";
    } else if (first == '\\') {
      text += "\\\\";
    } else if (control || length == 0) {
      text += fmt::format("\\x{:02x}", first);
    } else {
      text += path.substr(0, length);
    }
    path.remove_prefix(control || length == 0 ? 1 : length);
  }
  return text;
}

}  // namespace ingero::discover
