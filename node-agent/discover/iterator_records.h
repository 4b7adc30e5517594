// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/result.h"

namespace ingero::discover {

/// Reads an open BPF iterator to its end and hands over its records, which may be split between two reads.
/// `name` is for the error: iter/task_vma.
template <typename Record, typename Take>
Status read_iterator(int fd, const char* name, Take take) {
  std::vector<char> buffer(64 * sizeof(Record));
  std::size_t held = 0;
  while (true) {
    const ssize_t got = ::read(fd, buffer.data() + held, buffer.size() - held);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got < 0) return fail_errno("read iterator", name);
    if (got == 0) return {};
    held += static_cast<std::size_t>(got);
    std::size_t used = 0;
    for (; held - used >= sizeof(Record); used += sizeof(Record)) {
      Record record;
      std::memcpy(&record, buffer.data() + used, sizeof(record));
      take(record);
    }
    std::copy(buffer.begin() + static_cast<std::ptrdiff_t>(used),
              buffer.begin() + static_cast<std::ptrdiff_t>(held), buffer.begin());
    held -= used;
  }
}

}  // namespace ingero::discover
