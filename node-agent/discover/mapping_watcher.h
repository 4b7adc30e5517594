// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace ingero::discover {

/// A new executable mapping somewhere on the host. A wake-up, never a key: the device and inode in it
/// mean different things on different kernels.
struct MappingHint {
  std::uint32_t pid = 0;
  std::uint64_t time_ns = 0;       ///< CLOCK_MONOTONIC of the mmap
  std::uint64_t device_inode = 0;  ///< folded; only to tell "the same again"
  std::string path;
};

/// PERF_RECORD_MMAP2 of every CPU.
class MappingWatcher {
 public:
  /// Errors: EACCES where perf_event_paranoid asks for more; the caller then scans by time.
  static Result<MappingWatcher> create();
  ~MappingWatcher();
  MappingWatcher(MappingWatcher&&) noexcept;
  MappingWatcher& operator=(MappingWatcher&&) = delete;

  /// Readable when many records wait on some CPU; an epoll descriptor over all of them. Of few nothing tells:
  /// who wants them soon asks often.
  int descriptor() const { return epoll_.get(); }

  struct Batch {
    std::vector<MappingHint> hints;
    bool lost = false;  ///< some records were dropped, so a full scan is due
    bool more = false;  ///< the limit was reached: take the rest soon, nothing will tell of it
  };

  /// What has come since the last call, at most about so many records of each CPU.
  Batch take(std::size_t max_records = std::numeric_limits<std::size_t>::max());

 private:
  struct Ring {
    UniqueFd fd;
    void* memory = nullptr;
  };
  MappingWatcher() = default;
  Status add_cpu(int cpu);
  static void drain(Ring& ring, std::size_t max_records, Batch& batch);

  UniqueFd epoll_;
  std::vector<Ring> rings_;
};

}  // namespace ingero::discover
