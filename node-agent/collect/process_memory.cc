// SPDX-License-Identifier: Apache-2.0
#include "collect/process_memory.h"

#include <sys/uio.h>

#include <algorithm>

namespace ingero::collect {

std::vector<char> read_process_memory(std::uint32_t pid, std::uint64_t address, std::size_t size) {
  constexpr std::size_t kStep = 64 << 10;
  std::vector<char> bytes;
  while (bytes.size() < size) {
    const std::size_t at = bytes.size();
    const std::size_t wanted = std::min(kStep, size - at);
    bytes.resize(at + wanted);
    iovec local{bytes.data() + at, wanted};
    iovec remote{reinterpret_cast<void*>(address + at), wanted};
    const ssize_t got = ::process_vm_readv(static_cast<pid_t>(pid), &local, 1, &remote, 1, 0);
    const std::size_t more = got < 0 ? 0 : static_cast<std::size_t>(got);
    bytes.resize(at + more);
    if (more < wanted) break;  // the mapping ends here; what came before its end is as good
  }
  return bytes;
}

}  // namespace ingero::collect
