// SPDX-License-Identifier: Apache-2.0
#include "base/text_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/unique_fd.h"

namespace ingero {

Result<std::string> read_text_file(const std::string& path, std::size_t max_bytes,
                                   const std::string& operation) {
  // O_NONBLOCK: a FIFO in the place of the file must not stop the agent.
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return fail_errno(operation, path);
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) return fail_errno(operation, path);
  if (!S_ISREG(status.st_mode))
    return fail(Error{operation, path, "it is not a regular file", "", 0});

  std::string text;
  char buffer[16 * 1024];
  for (;;) {
    const ssize_t got = ::read(fd.get(), buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail_errno(operation, path);
    if (got == 0) return text;
    text.append(buffer, static_cast<std::size_t>(got));
    if (text.size() > max_bytes) {
      return fail(
          Error{operation, path, fmt::format("it is longer than {} bytes", max_bytes), "", 0});
    }
  }
}

}  // namespace ingero
