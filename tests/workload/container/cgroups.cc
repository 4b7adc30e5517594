// SPDX-License-Identifier: Apache-2.0
#include "container/cgroups.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>

namespace ingero::container {
namespace {

void pause_ms(long milliseconds) {
  const timespec pause{0, milliseconds * 1'000'000};
  nanosleep(&pause, nullptr);
}

bool has_option(const std::string& options, const char* wanted) {
  std::istringstream list(options);
  for (std::string option; std::getline(list, option, ',');)
    if (option == wanted) return true;
  return false;
}

// Mount points of the hierarchies, from /proc/self/mountinfo; a later mount of one is ignored.
std::vector<std::string> hierarchy_roots() {
  std::vector<std::string> roots;
  bool memory = false, pids = false, unified = false;
  std::ifstream mounts("/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    std::string skip, point, type, source, options;
    std::istringstream fields(line);
    fields >> skip >> skip >> skip >> skip >> point;
    while (fields >> skip && skip != "-") {
    }
    fields >> type >> source >> options;
    bool* seen = nullptr;
    if (type == "cgroup2") seen = &unified;
    if (type == "cgroup" && has_option(options, "memory")) seen = &memory;
    if (type == "cgroup" && has_option(options, "pids")) seen = &pids;
    if (seen == nullptr || *seen) continue;
    *seen = true;
    roots.push_back(point);
  }
  return roots;
}

// Another container may remove the common parents at the same moment: begin again then.
bool make_directories(const std::string& root, const std::string& path) {
  for (int attempt = 0; attempt < 100; attempt++) {
    std::size_t slash = 0;
    bool made = true;
    while (made && slash != std::string::npos) {
      slash = path.find('/', slash + 1);
      const std::string part = root + path.substr(0, slash);
      made = mkdir(part.c_str(), 0755) == 0 || errno == EEXIST;
    }
    if (made) return true;
    if (errno != ENOENT) return false;
    pause_ms(1);
  }
  return false;
}

void kill_members(const std::string& directory) {
  std::ifstream members(directory + "/cgroup.procs");
  for (pid_t pid = 0; members >> pid;) kill(pid, SIGKILL);
}

}  // namespace

Cgroups::Cgroups(const std::string& path, bool keep) : path_(path), keep_(keep) {
  while (path_.size() > 1 && path_.back() == '/') path_.pop_back();
}

bool Cgroups::create() {
  for (const auto& root : hierarchy_roots()) {
    if (!make_directories(root, path_)) {
      std::fprintf(stderr, "container_run: make cgroup %s%s: %s\n", root.c_str(), path_.c_str(),
                   std::strerror(errno));
      return false;
    }
    roots_.push_back(root);
    directories_.push_back(root + path_);
  }
  if (directories_.empty()) std::fprintf(stderr, "container_run: no cgroup hierarchy is mounted\n");
  return !directories_.empty();
}

bool Cgroups::enter() const {
  for (const auto& directory : directories_) {
    const int file = open((directory + "/cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC);
    const bool moved = file >= 0 && write(file, "0", 1) == 1;  // 0 is the writer itself
    if (!moved)
      std::fprintf(stderr, "container_run: enter %s: %s\n", directory.c_str(),
                   std::strerror(errno));
    if (file >= 0) close(file);
    if (!moved) return false;
  }
  return true;
}

// The leaf, then the parents as far as they are empty; others may still use those.
void Cgroups::remove_path(const std::string& root) const {
  const std::string leaf = root + path_;
  for (int attempt = 0; attempt < 200; attempt++) {
    if (rmdir(leaf.c_str()) == 0 || errno == ENOENT) break;
    if (attempt % 20 == 0) kill_members(leaf);
    pause_ms(10);  // members leave some time after they are waited for
  }
  for (std::size_t end = path_.rfind('/'); end != std::string::npos && end > 0;
       end = path_.rfind('/', end - 1)) {
    if (rmdir((root + path_.substr(0, end)).c_str()) != 0) break;
  }
}

Cgroups::~Cgroups() {
  if (keep_) return;
  for (const auto& root : roots_) remove_path(root);
}

}  // namespace ingero::container
