// SPDX-License-Identifier: Apache-2.0
#include "program/library.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace ingero::workload {

Library::Library(const std::string& path) : path_(path) {
  if (path.empty()) return;
  handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle_ == nullptr) {
    std::fprintf(stderr, "ingero_workload: load %s: %s\n", path.c_str(), dlerror());
    std::exit(3);
  }
}

FileIdentity Library::identity() const {
  FileIdentity identity;
  struct stat status {};
  if (stat(path_.c_str(), &status) == 0) {
    identity.stat_device =
        std::to_string(major(status.st_dev)) + ":" + std::to_string(minor(status.st_dev));
    identity.stat_inode = status.st_ino;
  }
  char* resolved = realpath(path_.c_str(), nullptr);
  const std::string wanted = resolved ? resolved : path_;
  std::free(resolved);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::string range, mode, offset, device, file;
    unsigned long long inode = 0;
    std::istringstream(line) >> range >> mode >> offset >> device >> inode >> file;
    if (file != wanted) continue;
    identity.maps_device = device;
    identity.maps_inode = inode;
    break;
  }
  return identity;
}

}  // namespace ingero::workload
