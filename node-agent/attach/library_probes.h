// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <future>
#include <unordered_map>
#include <vector>

#include "attach/bpf_object.h"
#include "attach/link_reaper.h"
#include "base/result.h"
#include "model/functions.h"
#include "model/identity.h"

namespace ingero::attach {

/// What to probe in one file.
struct LibraryTarget {
  model::FileKey file;
  std::uint32_t index = 0;  ///< of the library, travels in the cookie; 0: none
  struct Point {
    const model::ApiFunction* function = nullptr;
    std::uint64_t offset = 0;  ///< in the file
  };
  std::vector<Point> points;
};

/// The held probes: one set per kernel inode, however many containers map it.
class LibraryProbes {
 public:
  LibraryProbes(const BpfObject& bpf, model::AttachMethod method) : bpf_(bpf), method_(method) {}
  ~LibraryProbes();  ///< returns when all probes are gone
  LibraryProbes(const LibraryProbes&) = delete;
  LibraryProbes& operator=(const LibraryProbes&) = delete;

  /// Attaches all points through the open file `fd` (borrowed), or none. A file that is attached
  /// already stays as it is. Fails with EBUSY while the file's last probes are being removed (waits a
  /// moment for it): old and new ones together would count each call twice.
  Status attach(const LibraryTarget& target, int fd);

  /// Removes the probes of a file; the closing, slow on some kernels, happens in the background.
  void detach(const model::FileKey& file);

  /// For the end of the agent: a child process takes the probes away, and nobody waits for it. Where that is
  /// quick (session, multi) it is done at once.
  void leave_to_child();

  bool attached(const model::FileKey& file) const { return links_.contains(file); }
  std::size_t size() const { return links_.size(); }

 private:
  std::vector<UprobeLink> take_all();
  Status wait_until_closed(const model::FileKey& file);
  void close(const model::FileKey& file, std::vector<UprobeLink> links);

  const BpfObject& bpf_;
  model::AttachMethod method_;
  std::unordered_map<model::FileKey, std::vector<UprobeLink>, model::IdentityHash> links_;
  std::unordered_map<model::FileKey, std::shared_future<void>, model::IdentityHash> closing_;
  LinkReaper reaper_;
};

}  // namespace ingero::attach
