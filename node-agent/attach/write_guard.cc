// SPDX-License-Identifier: Apache-2.0
#include "attach/write_guard.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <future>
#include <new>
#include <utility>

#include "attach/link_reaper.h"

namespace ingero::attach {
namespace {

constexpr std::uint32_t kWritten = IN_MODIFY | IN_CLOSE_WRITE;

/// Lets whoever waits to write go on.
void end_lease(int fd) { ::fcntl(fd, F_SETLEASE, F_UNLCK); }

/// The kernel has told that the lease is to be given up.
bool is_lease_broken(int fd) { return ::fcntl(fd, F_GETLEASE) != F_RDLCK; }

/// Whether the file that the kernel probes lies in a lower layer of the overlay that `fd` was opened through:
/// a write there goes to a copy, which is another file.
bool is_below_overlay(const model::FileKey& file, int fd) {
  struct statfs system {};
  struct stat info {};
  if (::fstatfs(fd, &system) != 0 || system.f_type != OVERLAYFS_SUPER_MAGIC) return false;
  // A copy keeps the number of the file that it was made of.
  if (::fstat(fd, &info) != 0 || info.st_ino != file.inode) return false;
  constexpr int kHandleOnlyToCompare = 0x200;  // AT_HANDLE_FID, Linux 6.5: overlays have no other
  constexpr unsigned kOverlayMagic = 0xfb, kIsUpper = 4;
  constexpr std::size_t kMagicAt = 4, kFlagsAt = 6;
  alignas(file_handle) std::array<char, sizeof(file_handle) + MAX_HANDLE_SZ> bytes{};
  auto* handle = new (bytes.data()) file_handle{MAX_HANDLE_SZ, 0, {}};
  int mount = 0;
  if (::name_to_handle_at(fd, "", handle, &mount, AT_EMPTY_PATH | kHandleOnlyToCompare) != 0)
    return false;
  // By the bytes behind the header: its last member is declared without a size.
  const auto byte_of = [&](std::size_t at) {
    return static_cast<unsigned char>(bytes[sizeof(file_handle) + at]);
  };
  return handle->handle_bytes > kFlagsAt && byte_of(kMagicAt) == kOverlayMagic &&
         (byte_of(kFlagsAt) & kIsUpper) == 0;
}

}  // namespace

bool GuardedFile::arm(std::vector<UprobeLink> links) {
  const std::lock_guard lock(mutex_);
  armed_ = true;
  if (kind_ == GuardKind::kLease && is_lease_broken(fd())) broken_ = true;
  if (broken_) {
    links.clear();
    if (kind_ == GuardKind::kLease) end_lease(fd());
    return false;
  }
  links_ = std::move(links);
  return true;
}

std::vector<UprobeLink> GuardedFile::disarm() {
  const std::lock_guard lock(mutex_);
  return std::exchange(links_, {});
}

bool GuardedFile::is_broken() const {
  const std::lock_guard lock(mutex_);
  return broken_;
}

/// The probes go first: who waits for the lease may write then.
GuardedFile::~GuardedFile() {
  links_.clear();
  if (kind_ == GuardKind::kLease && !left_) end_lease(fd());
}

UniqueFd GuardedFile::leave_lease() {
  const std::lock_guard lock(mutex_);
  left_ = true;
  return UniqueFd(::fcntl(fd(), F_DUPFD_CLOEXEC, 0));
}

WriteGuards::WriteGuards(Written written)
    : written_(std::move(written)),
      notices_(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)),
      stop_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  std::promise<int> id;
  auto thread_id = id.get_future();
  thread_ = std::thread([this, &id] {
    sigset_t lease_signal;
    sigemptyset(&lease_signal);
    sigaddset(&lease_signal, SIGIO);
    // Here only: the signal is sent to this thread alone.
    pthread_sigmask(SIG_BLOCK, &lease_signal, nullptr);
    id.set_value(static_cast<int>(::syscall(SYS_gettid)));
    run();
  });
  thread_id_ = thread_id.get();
}

void WriteGuards::stop() {
  if (!thread_.joinable()) return;
  const std::uint64_t one = 1;
  static_cast<void>(!::write(stop_.get(), &one, sizeof(one)));
  thread_.join();
}

void WriteGuards::run() {
  pthread_setname_np(pthread_self(), "ingero-guard");
  sigset_t lease_signal;
  sigemptyset(&lease_signal);
  sigaddset(&lease_signal, SIGIO);
  const UniqueFd signals(::signalfd(-1, &lease_signal, SFD_NONBLOCK | SFD_CLOEXEC));
  std::array<pollfd, 3> waits{pollfd{signals.get(), POLLIN, 0}, pollfd{notices_.get(), POLLIN, 0},
                              pollfd{stop_.get(), POLLIN, 0}};
  while (true) {
    if (::poll(waits.data(), waits.size(), -1) < 0) continue;
    if (waits[2].revents != 0) return;
    if (waits[0].revents != 0) {
      signalfd_siginfo info{};
      while (::read(signals.get(), &info, sizeof(info)) > 0) {
      }
      check_leases();
    }
    if (waits[1].revents != 0) take_notices();
  }
}

/// The signal comes once for several leases, so that all are asked.
void WriteGuards::check_leases() {
  for (const auto& file : leased_files()) {
    if (!file->is_broken() && is_lease_broken(file->fd())) break_guard(file);
  }
}

std::vector<std::shared_ptr<GuardedFile>> WriteGuards::leased_files() {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<GuardedFile>> files;
  for (auto it = files_.begin(); it != files_.end();) {
    auto file = it->lock();
    if (file == nullptr) {
      it = files_.erase(it);
      continue;
    }
    ++it;
    if (file->kind() == GuardKind::kLease) files.push_back(std::move(file));
  }
  return files;
}

void WriteGuards::take_notices() {
  alignas(inotify_event) std::array<char, 4096> buffer;
  const ssize_t got = ::read(notices_.get(), buffer.data(), buffer.size());
  for (ssize_t at = 0; at < got;) {
    inotify_event event;
    std::copy_n(buffer.data() + at, sizeof(event), reinterpret_cast<char*>(&event));
    at += static_cast<ssize_t>(sizeof(event) + event.len);
    std::shared_ptr<GuardedFile> file;
    {
      const std::lock_guard lock(mutex_);
      const auto it = watched_.find(event.wd);
      if (it != watched_.end()) file = it->second.lock();
      if (it != watched_.end() && (file == nullptr || (event.mask & IN_IGNORED) != 0))
        watched_.erase(it);
    }
    if (file != nullptr && (event.mask & kWritten) != 0 && !file->is_broken()) break_guard(file);
  }
}

/// A watch would keep the file's inode.
void WriteGuards::forget_unwatched() {
  std::erase_if(watched_, [this](const auto& entry) {
    if (!entry.second.expired()) return false;
    ::inotify_rm_watch(notices_.get(), entry.first);
    return true;
  });
}

void WriteGuards::break_guard(const std::shared_ptr<GuardedFile>& file) {
  std::vector<UprobeLink> links;
  bool armed = false;
  {
    const std::lock_guard lock(file->mutex_);
    file->broken_ = true;
    armed = file->armed_;
    links = std::exchange(file->links_, {});
  }
  // Where the probes are still being attached, the one who does it takes them off again.
  if (!armed) return;
  LinkReaper::close_now(std::move(links));
  if (file->kind() == GuardKind::kLease) end_lease(file->fd());
  written_(file->file());
}

Result<std::shared_ptr<GuardedFile>> WriteGuards::guard(const model::FileKey& file,
                                                        std::shared_ptr<const UniqueFd> fd) {
  if (is_below_overlay(file, fd->get()))
    return std::make_shared<GuardedFile>(file, std::move(fd), GuardKind::kNone);
  const std::lock_guard lock(mutex_);
  const f_owner_ex owner{F_OWNER_TID, thread_id_};
  ::fcntl(fd->get(), F_SETOWN_EX, &owner);
  const bool leased = ::fcntl(fd->get(), F_SETLEASE, F_RDLCK) == 0;
  if (!leased && errno == EAGAIN)
    return fail({"attach probes", "", "somebody has the file open for writing",
                 "it is tried again later", ETXTBSY});
  auto guarded =
      std::make_shared<GuardedFile>(file, fd, leased ? GuardKind::kLease : GuardKind::kNotice);
  if (leased) {
    files_.push_back(guarded);
    return guarded;
  }
  // Neither the right to it (CAP_LEASE), nor a file system that has leases, is everywhere.
  forget_unwatched();
  const std::string path = fmt::format("/proc/self/fd/{}", fd->get());
  const int watch = ::inotify_add_watch(notices_.get(), path.c_str(), kWritten);
  if (watch < 0) return fail_errno("watch for writes", "inotify");
  watched_[watch] = guarded;
  return guarded;
}

}  // namespace ingero::attach
