// SPDX-License-Identifier: Apache-2.0
#include "container/rootfs.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace ingero::container {
namespace {

bool fail(const std::string& what) {
  std::fprintf(stderr, "container_run: %s: %s\n", what.c_str(), std::strerror(errno));
  return false;
}

bool make_path(const std::string& path) {
  for (std::size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    if (mkdir(path.substr(0, slash).c_str(), 0755) != 0 && errno != EEXIST)
      return fail("make directory " + path);
    if (slash == std::string::npos) return true;
  }
}

bool mount_at(const char* source, const std::string& target, const char* type, unsigned long flags,
              const std::string& data = "") {
  if (mount(source, target.c_str(), type, flags, data.empty() ? nullptr : data.c_str()) == 0)
    return true;
  return fail(std::string("mount ") + source + " at " + target);
}

bool bind_device(const std::string& root, const char* name) {
  const std::string host = std::string("/dev/") + name;
  const std::string target = root + host;
  const int file = open(target.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0) return fail("make " + target);
  close(file);
  return mount_at(host.c_str(), target, nullptr, MS_BIND);
}

bool mount_system(const std::string& root) {
  for (const char* name : {"/proc", "/dev", "/tmp"})
    if (!make_path(root + name)) return false;
  if (!mount_at("proc", root + "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)) return false;
  if (!mount_at("tmpfs", root + "/dev", "tmpfs", MS_NOSUID, "mode=755")) return false;
  for (const char* name : {"null", "zero", "random", "urandom"})
    if (!bind_device(root, name)) return false;
  return mount_at("tmpfs", root + "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777");
}

bool become_root(const std::string& root) {
  const std::string old = root + "/.old";
  if (!make_path(old)) return false;
  if (syscall(SYS_pivot_root, root.c_str(), old.c_str()) != 0) return fail("pivot_root");
  if (chdir("/") != 0) return fail("chdir /");
  if (umount2("/.old", MNT_DETACH) != 0) return fail("umount of the old root");
  rmdir("/.old");
  return true;
}

}  // namespace

bool enter_root(const RootSpec& spec) {
  // Nothing mounted here may appear outside.
  if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    return fail("make the mounts private");
  const std::string& base = spec.work_dir;
  if (!mount_at("tmpfs", base, "tmpfs", MS_NODEV, "mode=755")) return false;
  const std::string upper = base + "/upper", work = base + "/work", root = base + "/root";
  for (const auto& path : {upper, work, root})
    if (!make_path(path)) return false;
  if (!mount_at("overlay", root, "overlay", 0,
                "lowerdir=" + spec.lower + ",upperdir=" + upper + ",workdir=" + work))
    return false;
  if (!mount_system(root)) return false;
  for (const auto& share : spec.shares) {
    if (!make_path(root + share.inside)) return false;
    if (!mount_at(share.host.c_str(), root + share.inside, nullptr, MS_BIND | MS_REC)) return false;
  }
  return become_root(root);
}

}  // namespace ingero::container
