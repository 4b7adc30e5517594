// SPDX-License-Identifier: Apache-2.0
#include "attribute/cgroup_walk.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <deque>
#include <memory>
#include <string_view>
#include <utility>

namespace ingero::attribute {
namespace {

struct CloseDirectory {
  void operator()(DIR* directory) const { ::closedir(directory); }
};
using UniqueDir = std::unique_ptr<DIR, CloseDirectory>;

struct Pending {
  std::string path;  // below the top, "" for the top
  std::size_t depth;
};

class Walk {
 public:
  Walk(const std::string& top, const std::unordered_set<std::uint64_t>& wanted,
       const WalkLimits& limits)
      : top_(top), wanted_(wanted), limits_(limits) {}

  WalkResult run() {
    struct stat status {};
    if (::lstat(top_.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) return {};
    device_ = status.st_dev;
    note(status, "/");
    pending_.push_back({"", 0});
    while (!pending_.empty() && !done()) {
      const Pending next = std::move(pending_.front());
      pending_.pop_front();
      read_directory(next);
    }
    if (depth_cut_ && !done()) result_.truncated = true;
    return std::move(result_);
  }

 private:
  bool done() const { return result_.truncated || result_.found.size() == wanted_.size(); }

  void note(const struct stat& status, std::string path) {
    ++result_.directories;
    if (wanted_.contains(status.st_ino)) result_.found.emplace(status.st_ino, std::move(path));
  }

  void read_directory(const Pending& parent) {
    const int fd = ::open((top_ + parent.path).c_str(),
                          O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return;
    const UniqueDir directory(::fdopendir(fd));
    if (!directory) {
      ::close(fd);
      return;
    }
    while (const dirent* entry = ::readdir(directory.get())) {
      if (entry->d_type != DT_DIR && entry->d_type != DT_UNKNOWN) continue;
      const std::string_view name(entry->d_name);
      if (name != "." && name != "..") visit(fd, entry->d_name, parent);
      if (done()) return;
    }
  }

  void visit(int parent_fd, const char* name, const Pending& parent) {
    struct stat status {};
    if (::fstatat(parent_fd, name, &status, AT_SYMLINK_NOFOLLOW) != 0) return;
    if (!S_ISDIR(status.st_mode) || status.st_dev != device_) return;
    if (result_.directories >= limits_.max_directories) {
      result_.truncated = true;
      return;
    }
    std::string path = parent.path + "/" + name;
    note(status, path);
    // Two links: no subdirectory. A cgroup directory has dozens of files, and most are leaves.
    if (status.st_nlink == 2) return;
    if (parent.depth + 1 >= limits_.max_depth) {
      depth_cut_ = true;
      return;
    }
    pending_.push_back({std::move(path), parent.depth + 1});
  }

  const std::string& top_;
  const std::unordered_set<std::uint64_t>& wanted_;
  const WalkLimits& limits_;
  dev_t device_ = 0;
  bool depth_cut_ = false;
  std::deque<Pending> pending_;
  WalkResult result_;
};

}  // namespace

WalkResult find_directories(const std::string& top, const std::unordered_set<std::uint64_t>& wanted,
                            const WalkLimits& limits) {
  return Walk(top, wanted, limits).run();
}

}  // namespace ingero::attribute
