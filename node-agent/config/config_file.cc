// SPDX-License-Identifier: Apache-2.0
#include "config/config_file.h"

#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>

namespace ingero::config {
namespace {

// A mounted ConfigMap changes by the rename of this link; the files' own names never change.
constexpr std::string_view kConfigMapLink = "..data";

}  // namespace

Result<ConfigFileWatch> ConfigFileWatch::create(const std::string& path) {
  const std::filesystem::path file(path);
  const std::string folder = file.has_parent_path() ? file.parent_path().string() : ".";
  UniqueFd inotify(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  if (!inotify) return fail_errno("watch configuration", path);
  constexpr std::uint32_t kEvents =
      IN_CLOSE_WRITE | IN_MODIFY | IN_MOVED_TO | IN_MOVED_FROM | IN_CREATE | IN_DELETE;
  if (::inotify_add_watch(inotify.get(), folder.c_str(), kEvents) < 0)
    return fail_errno("watch configuration", path);
  return ConfigFileWatch(std::move(inotify), file.filename().string());
}

bool ConfigFileWatch::take() {
  alignas(inotify_event) std::array<char, 16384> buffer;
  bool changed = false;
  while (true) {
    const ssize_t size = ::read(inotify_.get(), buffer.data(), buffer.size());
    if (size <= 0) return changed;
    for (ssize_t at = 0; at < size;) {
      inotify_event event;
      std::memcpy(&event, buffer.data() + at, sizeof(event));
      const std::string_view name(event.len ? buffer.data() + at + sizeof(event) : "");
      changed =
          changed || (event.mask & IN_Q_OVERFLOW) != 0 || name == name_ || name == kConfigMapLink;
      at += static_cast<ssize_t>(sizeof(event) + event.len);
    }
  }
}

}  // namespace ingero::config
