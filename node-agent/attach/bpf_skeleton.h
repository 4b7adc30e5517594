// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "bpf/wire.h"

// Generated code does not follow the project's warnings.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wold-style-cast"
#pragma GCC diagnostic ignored "-Wcast-qual"
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wshadow"
#include "ingero.skel.h"
#pragma GCC diagnostic pop

namespace ingero::attach {

struct SkeletonDeleter {
  void operator()(ingero_bpf* skeleton) const { ingero_bpf__destroy(skeleton); }
};
using SkeletonPtr = std::unique_ptr<ingero_bpf, SkeletonDeleter>;

/// Opened, not loaded; null with errno set on failure.
SkeletonPtr open_skeleton();

/// Takes the tail calls that are never made out of all programs; to be called before the load. Where the
/// kernel leaves programs on their thread's stack by itself they are not needed (bpf/frame.h).
void take_out_tail_calls(ingero_bpf* skeleton);

/// 0, or a negative errno.
int load_skeleton(ingero_bpf* skeleton);

/// While it lives, libbpf's messages are kept here instead of going to stderr. One at a time.
class LibbpfLog {
 public:
  LibbpfLog();
  ~LibbpfLog();
  LibbpfLog(const LibbpfLog&) = delete;
  LibbpfLog& operator=(const LibbpfLog&) = delete;

  /// The last thing libbpf complained about, one line.
  std::string last_line() const;

  /// Why the verifier refuses a program: its name and the last lines of the verifier; empty: it did not.
  std::string refusal() const;
};

}  // namespace ingero::attach
