// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bpf/bpf.h>
#include <linux/bpf.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <limits>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace ingero::discover {

/// Where a walk ends although there is more: tenants decide how much there is to see.
struct WalkLimits {
  std::chrono::nanoseconds cpu = std::chrono::nanoseconds::max();  ///< of the walking thread
  std::size_t records = std::numeric_limits<std::size_t>::max();
};

/// Whose tasks an iterator walks over. Kernels before 6.1 know the whole host only.
struct WalkOver {
  std::uint32_t tid = 0;   ///< this thread
  std::uint32_t tgid = 0;  ///< the threads of this process
};

/// Not the time by the wall clock, which is long where others use the processor.
inline std::chrono::nanoseconds thread_cpu_time() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

/// Opens a BPF iterator; `name` is for the error: iter/task_vma. No descriptor: nobody is there.
inline Result<UniqueFd> open_iterator(int program, const char* name, const WalkOver& over) {
  bpf_iter_link_info info{};
  info.task.tid = over.tid;
  info.task.pid = over.tgid;
  bpf_link_create_opts options{};
  options.sz = sizeof(options);
  if (over.tid != 0 || over.tgid != 0) {
    options.iter_info = &info;
    options.iter_info_len = sizeof(info);
  }
  const UniqueFd link(bpf_link_create(program, 0, BPF_TRACE_ITER, &options));
  if (!link) {
    if (errno == ESRCH || errno == EINVAL) return UniqueFd();  // the process is gone
    return fail_errno("create iterator", name, "needs CAP_BPF, CAP_PERFMON, Linux 5.15");
  }
  UniqueFd iterator(bpf_iter_create(link.get()));
  if (!iterator) return fail_errno("open iterator", name);
  return iterator;
}

/// Reads an open BPF iterator and hands over its records, which may be split between two reads. Returns
/// whether it came to the end. The kernel gives the thread back once in a million steps at least.
template <typename Record, typename Take>
Result<bool> read_iterator(int fd, const char* name, const WalkLimits& limits, Take take) {
  std::vector<char> buffer(64 * sizeof(Record));
  std::size_t held = 0, taken = 0;
  const auto began = thread_cpu_time();
  while (true) {
    if (taken >= limits.records || thread_cpu_time() - began >= limits.cpu) return false;
    const ssize_t got = ::read(fd, buffer.data() + held, buffer.size() - held);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got < 0) return fail_errno("read iterator", name);
    if (got == 0) return true;
    held += static_cast<std::size_t>(got);
    std::size_t used = 0;
    for (; held - used >= sizeof(Record); used += sizeof(Record), ++taken) {
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
