// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

#include "attach/bpf_object.h"
#include "base/clock.h"
#include "discover/library_finder.h"
#include "discover/mapping_scanner.h"
#include "discover/mapping_watcher.h"

namespace ingero::discover {
namespace {

namespace fs = std::filesystem;

const std::string kStub = std::string(INGERO_STUBS) + "/push/libcudart.so.13";

std::uint64_t nanoseconds(const timespec& time) {
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(time.tv_nsec);
}

/// An executable mapping in this process.
class Mapping {
 public:
  explicit Mapping(const std::string& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    address_ = ::mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd_.get(), 0);
  }
  ~Mapping() { ::munmap(address_, 4096); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  int fd() const { return fd_.get(); }
  std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(address_); }

 private:
  UniqueFd fd_;
  void* address_;
};

class Discover : public ::testing::Test {
 protected:
  void SetUp() override {
    attach::BpfOptions options;
    options.method = model::AttachMethod::kPerf;  // each kernel has it; nothing here is probed
    auto bpf = attach::BpfObject::create(options);
    ASSERT_TRUE(bpf) << bpf.error().message();
    bpf_ = std::move(*bpf);
    scanner_ = std::make_unique<MappingScanner>(bpf_->handles());
    folder_ = fs::temp_directory_path() / ("ingero-discover-" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override {
    for (const auto& mount : mounts_) ::umount2(mount.c_str(), MNT_DETACH);
    fs::remove_all(folder_);
  }
  /// Mounts an overlay over `lower` with its own upper folder; returns the mount point.
  fs::path overlay(const std::string& name, const fs::path& lower) {
    const fs::path upper = folder_ / (name + ".upper"), work = folder_ / (name + ".work"),
                   merged = folder_ / name;
    for (const auto& path : {upper, work, merged}) fs::create_directories(path);
    const std::string options =
        "lowerdir=" + lower.string() + ",upperdir=" + upper.string() + ",workdir=" + work.string();
    EXPECT_EQ(::mount("overlay", merged.c_str(), "overlay", 0, options.c_str()), 0) << errno;
    mounts_.push_back(merged);
    return merged;
  }
  const FileMapping* find(const std::vector<FileMapping>& mappings, std::uint64_t address) {
    const auto it = std::find_if(mappings.begin(), mappings.end(), [&](const FileMapping& mapping) {
      return mapping.start <= address && address < mapping.end;
    });
    return it == mappings.end() ? nullptr : &*it;
  }

  std::unique_ptr<attach::BpfObject> bpf_;
  std::unique_ptr<MappingScanner> scanner_;
  fs::path folder_;
  std::vector<fs::path> mounts_;
};

TEST_F(Discover, OverlayMountsOfOneLowerFileAreOneFile) {
  fs::create_directories(folder_ / "lower");
  fs::copy_file(kStub, folder_ / "lower/libcudart.so");
  const Mapping one(overlay("a", folder_ / "lower") / "libcudart.so");
  const Mapping two(overlay("b", folder_ / "lower") / "libcudart.so");
  struct stat first {
  }, second{};
  ASSERT_EQ(::fstat(one.fd(), &first), 0);
  ASSERT_EQ(::fstat(two.fd(), &second), 0);
  EXPECT_NE(first.st_dev, second.st_dev) << "stat tells them apart: the trap is set";
  const auto mappings = scanner_->scan_process(static_cast<std::uint32_t>(::getpid()));
  ASSERT_TRUE(mappings) << mappings.error().message();
  const auto* a = find(*mappings, one.address());
  const auto* b = find(*mappings, two.address());
  ASSERT_TRUE(a && b);
  EXPECT_EQ(a->file, b->file);
  EXPECT_EQ(*scanner_->identity_of(two.fd()), a->file);
}

TEST_F(Discover, ACopiedUpFileIsAnotherFile) {
  fs::create_directories(folder_ / "lower");
  fs::copy_file(kStub, folder_ / "lower/libcudart.so");
  const auto merged = overlay("a", folder_ / "lower");
  const UniqueFd before(::open((merged / "libcudart.so").c_str(), O_RDONLY | O_CLOEXEC));
  const auto lower = scanner_->identity_of(before.get());
  std::ofstream(merged / "libcudart.so", std::ios::app) << "x";
  const UniqueFd after(::open((merged / "libcudart.so").c_str(), O_RDONLY | O_CLOEXEC));
  const auto upper = scanner_->identity_of(after.get());
  ASSERT_TRUE(lower && upper);
  EXPECT_NE(*lower, *upper);
}

TEST_F(Discover, AScanOfTheHostShowsThisProcessWithItsStartTime) {
  const Mapping mapping(kStub);
  const auto mappings = scanner_->scan_all();
  ASSERT_TRUE(mappings);
  bool seen = false;
  for (const FileMapping& found : *mappings) {
    if (found.process.tgid != static_cast<unsigned>(::getpid()) ||
        found.path != fs::canonical(kStub))
      continue;
    seen = true;
    EXPECT_GT(found.process.start_ns, 0u);
    EXPECT_LT(found.process.start_ns, system_clock_source().boottime_ns());
    EXPECT_EQ(found.version.size, fs::file_size(kStub));
    EXPECT_EQ(found.comm.substr(0, 8), "discover");
  }
  EXPECT_TRUE(seen);
}

/// A child that does as it is told, until it is killed.
class Child {
 public:
  template <typename Body>
  explicit Child(Body body) {
    int ready[2];
    EXPECT_EQ(::pipe(ready), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      body([&] { [[maybe_unused]] const auto written = ::write(ready[1], "x", 1); });
      for (;;) ::pause();
    }
    ::close(ready[1]);
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    ::close(ready[0]);
  }
  ~Child() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  std::uint32_t pid() const { return static_cast<std::uint32_t>(pid_); }

 private:
  pid_t pid_ = -1;
};

std::size_t count_of(const std::vector<FileMapping>& mappings, const fs::path& path) {
  return static_cast<std::size_t>(
      std::count_if(mappings.begin(), mappings.end(),
                    [&](const FileMapping& mapping) { return mapping.path == path; }));
}

TEST_F(Discover, AFileThatAProcessMapsOftenIsShownOnce) {
  const Child child([](const auto& ready) {
    const int fd = ::open(kStub.c_str(), O_RDONLY | O_CLOEXEC);
    for (int i = 0; i < 2000; ++i) ::mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
    ready();
  });
  EXPECT_EQ(count_of(*scanner_->scan_process(child.pid()), fs::canonical(kStub)), 1u);
  std::size_t of_child = 0;
  const auto everybody = scanner_->walk_host({});
  ASSERT_TRUE(everybody);
  for (const FileMapping& mapping : everybody->mappings)
    if (mapping.process.tgid == child.pid() && mapping.path == fs::canonical(kStub)) ++of_child;
  EXPECT_EQ(of_child, 1u) << "where the kernel walks over everybody at once";
}

TEST_F(Discover, AProcessIsListedWithItsMappingsAndItsThread) {
  const Child child([](const auto& ready) { ready(); });
  const auto found = scanner_->find_process(child.pid());
  ASSERT_TRUE(found && *found);
  EXPECT_EQ((*found)->tid, child.pid());
  EXPECT_GT((*found)->mappings, 0u);
  const auto all = scanner_->processes();
  ASSERT_TRUE(all);
  const auto listed = std::count_if(all->begin(), all->end(), [&](const RunningProcess& process) {
    return process.process == (*found)->process;
  });
  EXPECT_EQ(listed, 1);
}

TEST_F(Discover, ALibraryThatAThreadMapsAfterItsLeaderHasEndedIsShownOnce) {
  const Child child([](const auto& ready) {
    for (int i = 0; i < 3; ++i)
      std::thread([&, i] {
        std::string stat;
        do {
          std::ifstream file("/proc/" + std::to_string(::getpid()) + "/stat");
          std::getline(file, stat);
        } while (stat.find(") Z ") == std::string::npos);
        if (i == 0) {
          const int fd = ::open(kStub.c_str(), O_RDONLY | O_CLOEXEC);
          ::mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
          ready();
        }
        for (;;) ::pause();
      }).detach();
    ::syscall(SYS_exit, 0);  // this thread alone
  });
  const auto found = scanner_->find_process(child.pid());
  ASSERT_TRUE(found && *found);
  EXPECT_NE((*found)->tid, child.pid());
  EXPECT_EQ(count_of(*scanner_->scan_process(child.pid()), fs::canonical(kStub)), 1u);
  const auto all = scanner_->processes();
  ASSERT_TRUE(all);
  EXPECT_EQ(std::count_if(
                all->begin(), all->end(),
                [&](const RunningProcess& process) { return process.process.tgid == child.pid(); }),
            1);
}

TEST_F(Discover, AWalkEndsAtItsLimitAndSaysSo) {
  const Child child([](const auto& ready) { ready(); });
  const auto process = scanner_->find_process(child.pid());
  ASSERT_TRUE(process && *process);
  const auto whole = scanner_->walk(**process, {});
  ASSERT_TRUE(whole);
  EXPECT_TRUE(whole->whole);
  EXPECT_FALSE(whole->mappings.empty());
  const auto cut = scanner_->walk(**process, {std::chrono::nanoseconds(0)});
  ASSERT_TRUE(cut);
  EXPECT_FALSE(cut->whole);
}

TEST_F(Discover, AnUninterestingFileIsLeftOutUntilItIsChanged) {
  const fs::path copy = folder_ / "libother.so";
  fs::copy_file(kStub, copy);
  const Mapping mapping(copy);
  const auto file = *scanner_->identity_of(mapping.fd());
  const auto pid = static_cast<std::uint32_t>(::getpid());
  const auto mappings = *scanner_->scan_process(pid);
  ASSERT_NE(find(mappings, mapping.address()), nullptr);
  const FileVersion version = find(mappings, mapping.address())->version;
  struct stat info {};
  ASSERT_EQ(::fstat(mapping.fd(), &info), 0);
  EXPECT_EQ(version.size, static_cast<std::uint64_t>(info.st_size));
  EXPECT_EQ(version.mtime_ns, nanoseconds(info.st_mtim));
  EXPECT_EQ(version.ctime_ns, nanoseconds(info.st_ctim));
  scanner_->mark_uninteresting(file, version);
  EXPECT_EQ(find(*scanner_->scan_process(pid), mapping.address()), nullptr);
  ASSERT_EQ(::utimensat(AT_FDCWD, copy.c_str(), nullptr, 0), 0);
  EXPECT_NE(find(*scanner_->scan_process(pid), mapping.address()), nullptr);
}

TEST_F(Discover, AGoneProcessGivesAnEmptyAnswer) {
  const auto mappings = scanner_->scan_process(0x3ffffff);
  ASSERT_TRUE(mappings) << mappings.error().message();
  EXPECT_TRUE(mappings->empty());
}

TEST_F(Discover, ANewMappingIsThereAtOnceWithItsTimeAndManyWakeTheReader) {
  auto watcher = MappingWatcher::create();
  ASSERT_TRUE(watcher) << watcher.error().message();
  const std::uint64_t before = system_clock_source().monotonic_ns();
  const Mapping mapping(kStub);
  bool seen = false;
  for (const MappingHint& hint : watcher->take().hints) {
    if (hint.pid != static_cast<unsigned>(::getpid()) || hint.path != fs::canonical(kStub))
      continue;
    seen = true;
    EXPECT_GE(hint.time_ns, before);
    EXPECT_LE(hint.time_ns, system_clock_source().monotonic_ns());
  }
  EXPECT_TRUE(seen);
  // Before its ring is full. Nobody takes any meanwhile, so it does not matter how long this lasts.
  for (int i = 0; i < 2000; ++i) const Mapping another(kStub);
  pollfd wait{watcher->descriptor(), POLLIN, 0};
  EXPECT_EQ(::poll(&wait, 1, 10'000), 1);
}

/// A finder and what it has told; its worker's results come when this thread waits for them.
class Looks {
 public:
  Looks(const MappingScanner& scanner, OpenPreference preference)
      : scanner_(scanner),
        worker_([this](std::function<void()> task) {
          const std::lock_guard lock(mutex_);
          tasks_.push_back(std::move(task));
          came_.notify_one();
        }),
        finder_(scanner, preference, worker_,
                {[this](Discovery discovery) { found.push_back(std::move(discovery)); },
                 [this](const model::Refusal& refusal) { refusals.push_back(refusal); },
                 [](const model::FileKey&) { return false; }}) {}

  /// What a scan of this process shows, once all of its files have been looked into.
  ScanResult scan() { return look(mappings()); }
  std::vector<FileMapping> mappings() const {
    return *scanner_.scan_process(static_cast<std::uint32_t>(::getpid()));
  }
  ScanResult look(const std::vector<FileMapping>& mappings) {
    auto result = finder_.sort_out(mappings);
    while (finder_.files_waiting() != 0) {
      std::unique_lock lock(mutex_);
      came_.wait(lock, [this] { return !tasks_.empty(); });
      auto task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
    }
    return result;
  }
  LibraryFinder& finder() { return finder_; }

  std::vector<Discovery> found;
  std::vector<model::Refusal> refusals;

 private:
  const MappingScanner& scanner_;
  std::mutex mutex_;
  std::condition_variable came_;
  std::deque<std::function<void()>> tasks_;
  DeadlineWorker worker_;
  LibraryFinder finder_;
};

TEST_F(Discover, ALibraryIsFoundOnceAndAgainWhenForgotten) {
  const Mapping mapping(kStub);
  Looks looks(*scanner_, OpenPreference::kAutomatic);
  EXPECT_TRUE(looks.scan().incomplete);
  ASSERT_EQ(looks.found.size(), 1u);
  EXPECT_EQ(looks.found[0].library.image.version, "13.0");
  ASSERT_EQ(looks.found[0].mappers.size(), 1u);
  EXPECT_EQ(looks.found[0].mappers[0].key.tgid, static_cast<unsigned>(::getpid()));
  const auto second = looks.scan();
  EXPECT_EQ(looks.found.size(), 1u);
  ASSERT_EQ(second.processes.size(), 1u) << "it is still mapped";
  looks.finder().forget(looks.found[0].library.file);
  looks.scan();
  EXPECT_EQ(looks.found.size(), 2u);
}

TEST_F(Discover, AFileThatIsOverwrittenInPlaceIsLookedIntoAgain) {
  const fs::path path = folder_ / "libcudart.so.12";
  fs::copy_file(kStub, path);
  const Mapping mapping(path);
  Looks looks(*scanner_, OpenPreference::kAutomatic);
  looks.scan();
  ASSERT_EQ(looks.found.size(), 1u);
  const auto file = looks.found[0].library.file;
  // The same size: its times alone tell.
  fs::copy_file(kStub, path, fs::copy_options::overwrite_existing);
  const auto second = looks.scan();
  EXPECT_EQ(second.changed, std::vector{file});
  EXPECT_TRUE(second.processes.empty()) << "what is known of it is out of date";
  ASSERT_EQ(looks.found.size(), 2u);
  EXPECT_EQ(looks.found[1].library.file, file) << "it is the same inode";
  EXPECT_TRUE(looks.scan().changed.empty());
}

TEST_F(Discover, AFileThatBecomesALibraryIsFound) {
  const fs::path path = folder_ / "libcudart.so.12";
  std::ofstream(path) << std::string(fs::file_size(kStub), 'x');
  const Mapping mapping(path);
  Looks looks(*scanner_, OpenPreference::kAutomatic);
  looks.scan();
  ASSERT_EQ(looks.refusals.size(), 1u);
  EXPECT_EQ(looks.refusals[0].reason, "file_refused");
  fs::copy_file(kStub, path, fs::copy_options::overwrite_existing);
  looks.scan();
  EXPECT_EQ(looks.found.size(), 1u);
}

TEST_F(Discover, AFileThatCannotBeOpenedForAMomentIsTriedAgain) {
  const fs::path path = folder_ / "libcudart.so.12";
  fs::copy_file(kStub, path);
  const Mapping mapping(path);
  Looks looks(*scanner_, OpenPreference::kAutomatic);
  const auto mappings = looks.mappings();
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit none{3, limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  looks.look(mappings);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  ASSERT_EQ(looks.refusals.size(), 1u);
  EXPECT_EQ(looks.refusals[0].reason, "open");
  EXPECT_TRUE(looks.found.empty());
  while (looks.found.empty()) {
    looks.scan();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(looks.refusals.size(), 1u) << "not before its time";
}

TEST_F(Discover, ALibraryOfAProcessWhoseMainThreadHasEndedIsFound) {
  const fs::path path = folder_ / "libcudart.so.12";
  fs::copy_file(kStub, path);
  std::array<int, 2> ready{};
  ASSERT_EQ(::pipe2(ready.data(), O_CLOEXEC), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    pthread_t thread{};
    static const std::string* library = &path.native();
    static const int* told = &ready[1];
    static pthread_t main_thread = ::pthread_self();
    ::pthread_create(
        &thread, nullptr,
        [](void*) -> void* {
          ::pthread_join(main_thread, nullptr);
          const Mapping late(*library);
          static_cast<void>(!::write(*told, "x", 1));
          for (;;) ::pause();
        },
        nullptr);
    ::syscall(SYS_exit, 0);  // this thread alone
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  Looks looks(*scanner_, OpenPreference::kAutomatic);
  looks.look(*scanner_->scan_process(static_cast<std::uint32_t>(child)));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  for (const int fd : ready) ::close(fd);
  ASSERT_EQ(looks.found.size(), 1u) << (looks.refusals.empty() ? "" : looks.refusals[0].message);
  EXPECT_EQ(looks.found[0].mappers[0].key.tgid, static_cast<unsigned>(child));
}

TEST_F(Discover, APathThatNamesAnotherFileByNowIsRefused) {
  const fs::path path = folder_ / "libcudart.so.12";
  fs::copy_file(kStub, path);
  const Mapping mapping(path);
  fs::copy_file(kStub, folder_ / "other");
  fs::rename(folder_ / "other", path);
  Looks looks(*scanner_, OpenPreference::kProcRoot);
  looks.scan();
  EXPECT_TRUE(looks.found.empty());
  ASSERT_EQ(looks.refusals.size(), 1u);
  EXPECT_EQ(looks.refusals[0].reason, "identity");
}

}  // namespace
}  // namespace ingero::discover
