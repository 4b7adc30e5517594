// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace ingero::container {

// One cgroup path in every hierarchy that tells containers apart: v1 memory, v1 pids, the v2 tree;
// those that are mounted. Removed on destruction, with what is left running in it.
class Cgroups {
 public:
  // `path` is relative to the mounts, such as /kubepods/besteffort/pod.../<id>.
  explicit Cgroups(const std::string& path, bool keep);
  ~Cgroups();
  Cgroups(const Cgroups&) = delete;
  Cgroups& operator=(const Cgroups&) = delete;

  // Creates the directories; false with a message on stderr where one can't be made.
  bool create();
  // Moves the calling process in.
  bool enter() const;
  const std::vector<std::string>& directories() const { return directories_; }

 private:
  void remove_path(const std::string& root) const;

  std::string path_;
  bool keep_;
  std::vector<std::string> roots_, directories_;
};

}  // namespace ingero::container
