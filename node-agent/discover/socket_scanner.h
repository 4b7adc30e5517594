// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "model/bpf_handles.h"
#include "model/identity.h"

namespace ingero::discover {

/// A process that has a file descriptor of a socket.
struct SocketHolder {
  std::uint64_t inode = 0;  ///< of the socket, as fstat() shows it
  model::ProcessKey process;
};

/// Tells who holds the TCP sockets of this host, through the BPF program iter/task_file. Needs the host's pid
/// namespace; what is on its way between two processes (SCM_RIGHTS) is held by neither.
class SocketScanner {
 public:
  explicit SocketScanner(const model::BpfHandles& handles) : handles_(handles) {}

  /// Walks over every open file of the host. A process may be there more than once.
  Result<std::vector<SocketHolder>> scan() const;

 private:
  model::BpfHandles handles_;
};

}  // namespace ingero::discover
