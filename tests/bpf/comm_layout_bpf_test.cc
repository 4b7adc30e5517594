// SPDX-License-Identifier: Apache-2.0
// Layouts of communicators that stand in this process's own memory; the maps are real ones.
#include <bpf/bpf.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <condition_variable>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "collect/comm_layout.h"

namespace ingero::collect {
namespace {

constexpr std::uint32_t kLibrary = 7;
constexpr std::uint64_t kContainer = 1000, kNeighbour = 2000;
constexpr std::uint32_t kListed = 1066192;  // 2.28.9
constexpr std::uint32_t kForked = kListed + 96;
constexpr std::uint64_t kMagic = 0x0280028002800280;

int make_map(const char* name, std::size_t key, std::size_t value) {
  return bpf_map_create(BPF_MAP_TYPE_HASH, name, static_cast<std::uint32_t>(key),
                        static_cast<std::uint32_t>(value), 1024, nullptr);
}

class Layouts : public testing::Test {
 protected:
  Layouts()
      : layouts_map_(make_map("layouts", sizeof(layout_key), sizeof(comm_layout))),
        comms_map_(make_map("comms", sizeof(comm_key), sizeof(comm_info))) {
    handles_.layouts = layouts_map_.get();
    handles_.comms = comms_map_.get();
    worker_ = std::make_unique<DeadlineWorker>([this](std::function<void()> task) {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    });
    layouts_ = std::make_unique<CommLayouts>(handles_, worker_.get());
  }

  /// A communicator of this process, with its rank and size at `offset`.
  CommPlace communicator(std::uint64_t cgroup, std::uint32_t offset, const CommRanks& ranks,
                         std::size_t size = 1082968) {
    auto memory = std::make_unique<std::vector<char>>(size);
    const std::uint64_t hash = 0x9e3779b97f4a7c15 * (memories_.size() + 1);
    char* const at = memory->data() + offset;
    std::memcpy(at - 8, &hash, 8);
    std::memcpy(at, &ranks.rank, 4);
    std::memcpy(at + 4, &ranks.nranks, 4);
    std::memcpy(memory->data(), &kMagic, 8);
    std::memcpy(memory->data() + size - 8, &kMagic, 8);
    const CommPlace place = at_address(cgroup, memory->data());
    memories_.push_back(std::move(memory));
    return place;
  }

  CommPlace at_address(std::uint64_t cgroup, const void* address) const {
    const CommPlace place{
        {reinterpret_cast<std::uint64_t>(address), 1, static_cast<std::uint32_t>(::getpid()), 0},
        cgroup,
        kLibrary};
    comm_info info{};
    info.created_ns = kCreated;
    bpf_map_update_elem(handles_.comms, &place.key, &info, BPF_ANY);
    return place;
  }

  /// Until nothing is being read.
  void settle() {
    for (;;) {
      const auto stats = worker_->stats();
      std::function<void()> task;
      {
        const std::lock_guard lock(mutex_);
        if (tasks_.empty() && stats.queued + stats.running == 0) return;
        if (!tasks_.empty()) {
          task = std::move(tasks_.front());
          tasks_.pop_front();
        }
      }
      if (task) {
        task();
      } else {
        std::this_thread::yield();
      }
    }
  }

  void check(const CommPlace& place, const CommRanks& ranks) {
    layouts_->check(place, ranks, kCreated);
    settle();
  }

  /// Until the look is due that the pace of a container allows.
  void look_until(const std::function<bool()>& done) {
    while (!done()) {
      layouts_->look_again();
      settle();
    }
  }

  LayoutState state(std::uint64_t cgroup) const {
    for (const LayoutState& state : layouts_->states())
      if (state.cgroup == cgroup) return state;
    return {};
  }

  std::uint32_t published(std::uint64_t cgroup) const {
    const layout_key key{cgroup, kLibrary, 0};
    comm_layout layout{};
    return bpf_map_lookup_elem(handles_.layouts, &key, &layout) == 0 ? layout.rank_offset : 0;
  }

  std::uint64_t lost(const std::string& reason) const {
    std::map<std::string, std::uint64_t> counts;
    layouts_->add_counts(counts);
    return counts.at(reason);
  }

  std::optional<CommRanks> resolve(const CommPlace& place) {
    layouts_->ranks_of(place);
    layouts_->resolve_asked();
    settle();
    return layouts_->ranks_of(place);
  }

  static constexpr std::uint64_t kCreated = 42;
  UniqueFd layouts_map_, comms_map_;
  model::BpfHandles handles_;
  std::vector<std::unique_ptr<std::vector<char>>> memories_;
  std::mutex mutex_;
  std::deque<std::function<void()>> tasks_;
  std::unique_ptr<DeadlineWorker> worker_;
  std::unique_ptr<CommLayouts> layouts_;
};

TEST_F(Layouts, AListedReleaseIsForNcclAndNotForRccl) {
  layouts_->add_library(kLibrary, "2.28.9", model::LibraryKind::kRccl);
  EXPECT_EQ(published(0), 0U);
  layouts_->add_library(kLibrary, "2.28.9");
  EXPECT_EQ(published(0), kListed);
  layouts_->add_library(kLibrary, "another");
  EXPECT_EQ(published(0), 0U) << "the index belongs to another file now";
}

TEST_F(Layouts, AListedLayoutIsComparedWithArguments) {
  layouts_->add_library(kLibrary, "2.28.9");
  check(communicator(kContainer, kListed, {1, 4}), {1, 4});
  EXPECT_EQ(state(kContainer).verified, 1U);
  EXPECT_EQ(lost("communicator_layout_wrong"), 0U);
}

TEST_F(Layouts, AListedLayoutThatArgumentsContradictIsDroppedForThisContainerAndFoundByExample) {
  layouts_->add_library(kLibrary, "2.28.9");
  // Where the release has rank and size, this build has others that look as good.
  const auto forked = [&](const CommRanks& ranks) {
    const CommPlace place = communicator(kContainer, kForked, ranks, 1082968 + 96);
    const std::uint64_t hash = 0xfeedfacefeedface;
    const CommRanks wrong{0, 32};
    auto* const at = reinterpret_cast<char*>(place.key.comm) + kListed;
    std::memcpy(at - 8, &hash, 8);
    std::memcpy(at, &wrong, 8);
    return place;
  };
  const auto first = forked({2, 4});
  EXPECT_FALSE(resolve(first)) << "another size than the release's, and never compared";
  layouts_->check(first, {2, 4}, kCreated);
  look_until([&] { return lost("communicator_layout_wrong") > 0; });
  EXPECT_EQ(state(kContainer).rank_offset, 0U);
  EXPECT_EQ(published(kContainer), 0U);
  EXPECT_EQ(published(0), kListed) << "others have their own look at it";
  layouts_->check(forked({3, 4}), {3, 4}, kCreated);
  look_until([&] { return state(kContainer).samples >= 2; });
  EXPECT_EQ(state(kContainer).rank_offset, 0U) << "two are not enough";
  layouts_->check(forked({0, 2}), {0, 2}, kCreated);
  look_until([&] { return state(kContainer).samples >= 3; });
  EXPECT_EQ(published(kContainer), kForked);
  EXPECT_TRUE(state(kContainer).found);
  EXPECT_EQ(resolve(forked({1, 2})), (CommRanks{1, 2}));
}

TEST_F(Layouts, WhatOneContainerShowsHoldsForItAlone) {
  layouts_->add_library(kLibrary, "0.0.0");
  for (std::int32_t rank = 0; rank < 4; ++rank)
    layouts_->check(communicator(kNeighbour, 4096, {rank, 4}), {rank, 4}, kCreated);
  look_until([&] { return state(kNeighbour).found; });
  EXPECT_EQ(published(kNeighbour), 4096U);
  EXPECT_EQ(published(kContainer), 0U);
  EXPECT_EQ(published(0), 0U);
  EXPECT_FALSE(resolve(communicator(kContainer, 4096, {0, 32})));
}

TEST_F(Layouts, AFoundLayoutIsDroppedAtTheFirstCommunicatorThatContradicts) {
  layouts_->add_library(kLibrary, "0.0.0");
  for (std::int32_t rank = 0; rank < 4; ++rank)
    layouts_->check(communicator(kContainer, 4096, {rank, 4}), {rank, 4}, kCreated);
  look_until([&] { return state(kContainer).found; });
  // Other ranks where they were found; nothing there would mean that it is still being made.
  const auto other = communicator(kContainer, 8192, {1, 4});
  const std::uint64_t hash = 0xfeedfacefeedface;
  const CommRanks others{0, 32};
  auto* const at = reinterpret_cast<char*>(other.key.comm) + 4096;
  std::memcpy(at - 8, &hash, 8);
  std::memcpy(at, &others, 8);
  look_until([&] {  // it may be too early for the next comparison
    layouts_->check(other, {1, 4}, kCreated);
    return lost("communicator_layout_wrong") > 0;
  });
  EXPECT_EQ(published(kContainer), 0U);
  EXPECT_FALSE(state(kContainer).found);
}

TEST_F(Layouts, ACommunicatorThatWasDestroyedWhileItWasReadSaysNothing) {
  layouts_->add_library(kLibrary, "2.28.9");
  const auto gone = communicator(kContainer, kForked, {1, 4}, 1082968 + 96);
  bpf_map_delete_elem(handles_.comms, &gone.key);
  check(gone, {1, 4});
  for (int i = 0; i < 8; ++i) {
    layouts_->look_again();
    settle();
  }
  EXPECT_EQ(lost("communicator_layout_wrong"), 0U);
}

TEST_F(Layouts, RanksOfDestroyedCommunicatorsAreForgotten) {
  layouts_->add_library(kLibrary, "2.28.9");
  const auto place = communicator(kContainer, kListed, {3, 8});
  EXPECT_EQ(resolve(place), (CommRanks{3, 8})) << "first and last word are the release's";
  layouts_->drop_gone();
  EXPECT_EQ(layouts_->known_ranks(place.key), (CommRanks{3, 8}));
  bpf_map_delete_elem(handles_.comms, &place.key);
  layouts_->drop_gone();
  EXPECT_FALSE(layouts_->known_ranks(place.key));
}

/// A page that nobody brings, as one of a file system that has stopped answering.
class HungPage {
 public:
  HungPage() : fd_(static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC))) {
    page_ = ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uffdio_api api{UFFD_API, 0, 0};
    if (!fd_ || ::ioctl(fd_.get(), UFFDIO_API, &api) != 0) return;
    uffdio_register range{};
    range.range = {reinterpret_cast<std::uint64_t>(page_), kSize};
    range.mode = UFFDIO_REGISTER_MODE_MISSING;
    works_ = ::ioctl(fd_.get(), UFFDIO_REGISTER, &range) == 0;
  }
  ~HungPage() {
    fd_.reset();  // lets those go that wait for it
    ::munmap(page_, kSize);
  }
  bool works() const { return works_; }
  void* address() const { return page_; }

 private:
  static constexpr std::size_t kSize = 2 << 20;
  UniqueFd fd_;
  void* page_ = nullptr;
  bool works_ = false;
};

TEST_F(Layouts, ACommunicatorInMemoryThatHangsHoldsUpItsOwnContainerOnly) {
  HungPage hung;
  if (!hung.works()) GTEST_SKIP() << "no userfaultfd here";
  layouts_->add_library(kLibrary, "2.28.9");
  layouts_->check(at_address(kNeighbour, hung.address()), {1, 4}, kCreated);
  check(communicator(kContainer, kListed, {1, 4}), {1, 4});
  EXPECT_EQ(state(kContainer).verified, 1U);
  while (lost("communicator_read_hung") == 0) settle();
  EXPECT_TRUE(worker_->stuck(kNeighbour));
  layouts_->check(at_address(kNeighbour, hung.address()), {1, 4}, kCreated);
  settle();
  EXPECT_GE(lost("communicator_read_refused"), 1U);
  EXPECT_EQ(resolve(communicator(kContainer, kListed, {2, 4})), (CommRanks{2, 4}));
}

}  // namespace
}  // namespace ingero::collect
