// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace ingero::container {

struct Share {
  std::string host, inside;
};

struct RootSpec {
  std::string lower;     // shared by many containers: one real inode per file
  std::string work_dir;  // an empty directory of this container's own
  std::vector<Share> shares;
};

// In a mount namespace of its own: an overlay of `lower` with upper on a fresh tmpfs, /proc, /dev,
// /tmp and the shares become the root of the calling process. False with a message on failure.
bool enter_root(const RootSpec& spec);

}  // namespace ingero::container
