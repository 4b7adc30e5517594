// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
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

/// The held probes: one set per kernel inode, however many containers map it. For one thread.
class LibraryProbes {
 public:
  LibraryProbes(const BpfObject& bpf, model::AttachMethod method) : bpf_(bpf), method_(method) {}
  ~LibraryProbes();  ///< returns when all probes are gone
  LibraryProbes(const LibraryProbes&) = delete;
  LibraryProbes& operator=(const LibraryProbes&) = delete;

  /// What attaches all points of a target through its open file, or none: for any thread, since it takes
  /// milliseconds and may wait for the file's pages. Fails with EBUSY while the file's last probes are being
  /// removed (waits for it): old and new ones together would count each call twice. The probes are in place
  /// when it returns, and belong to the caller until hold() takes them.
  using Attach = std::function<Result<std::vector<UprobeLink>>()>;
  Attach prepare(const LibraryTarget& target, std::shared_ptr<const UniqueFd> fd);

  /// Keeps the probes of a file that is not attached.
  void hold(const model::FileKey& file, std::vector<UprobeLink> links);

  /// Removes probes that are not wanted any more, in the background.
  void discard(const model::FileKey& file, std::vector<UprobeLink> links) {
    close(file, std::move(links));
  }

  /// What the probes of a target hold open.
  std::size_t descriptors_of(const LibraryTarget& target) const;

  /// Removes the probes of a file; the closing, slow on some kernels, happens in the background.
  void detach(const model::FileKey& file);

  /// For the end of the agent: a child process takes the probes away, and nobody waits for it. Where that is
  /// quick (session, multi) it is done at once.
  void leave_to_child();

  bool attached(const model::FileKey& file) const { return links_.contains(file); }
  std::size_t size() const { return links_.size(); }

 private:
  std::vector<UprobeLink> take_all();
  void close(const model::FileKey& file, std::vector<UprobeLink> links);

  const BpfObject& bpf_;
  model::AttachMethod method_;
  std::unordered_map<model::FileKey, std::vector<UprobeLink>, model::IdentityHash> links_;
  std::unordered_map<model::FileKey, std::shared_future<void>, model::IdentityHash> closing_;
  LinkReaper reaper_;
};

}  // namespace ingero::attach
