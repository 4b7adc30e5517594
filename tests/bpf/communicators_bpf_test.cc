// SPDX-License-Identifier: Apache-2.0
// Communicators that come late, go early, or are made by calls that fail.
#include <algorithm>
#include <atomic>
#include <map>
#include <thread>
#include <vector>

#include "accounting_test.h"
#include "tests/workload/stubs/nccl_abi.h"
#include "tests/workload/stubs/stub_control.h"

namespace ingero::testing {
namespace {

class Communicators : public Accounting {
 protected:
  void SetUp() override {
    Accounting::SetUp();
    if (!bpf_) return;
    attach(library_, {"ncclCommInitRank", "ncclCommSplit", "ncclCommShrink", "ncclGroupStart",
                      "ncclGroupEnd", "ncclAllGather", "ncclCommAbort", "ncclCommGetAsyncError"});
    config_.size = sizeof(config_);
    config_.blocking = 0;
    ncclUniqueId id{};
    id.internal[0] = 7;
    ASSERT_EQ(call<decltype(ncclCommInitRank)>("ncclCommInitRank")(&parent_, kRanks, id, 3), 0);
  }

  template <typename Function>
  Function* call(const char* symbol) const {
    return library_.function<Function>(symbol);
  }
  int split(int color, ncclComm_t* child, ncclConfig_t* config) {
    return call<decltype(ncclCommSplit)>("ncclCommSplit")(parent_, color, 0, child, config);
  }
  void group(bool begins) { call<int()>(begins ? "ncclGroupStart" : "ncclGroupEnd")(); }
  void gather(ncclComm_t comm) {
    call<decltype(ncclAllGather)>("ncclAllGather")(nullptr, nullptr, 100, 0, comm, nullptr);
  }
  static ncclComm_t wait_for(ncclComm_t& handle) {
    while (__atomic_load_n(&handle, __ATOMIC_ACQUIRE) == nullptr) std::this_thread::yield();
    return handle;
  }
  std::map<std::uint64_t, model::Communicator> known() {
    std::map<std::uint64_t, model::Communicator> found;
    for (auto& comm : read().communicators) found.emplace(comm.handle, comm);
    return found;
  }
  static std::uint64_t number(ncclComm_t comm) { return reinterpret_cast<std::uint64_t>(comm); }

  static constexpr int kRanks = 16;
  StubLibrary library_ = StubLibrary::load(kStubs + "/push/libnccl.so.2");
  ncclConfig_t config_{};
  ncclComm_t parent_ = nullptr;
};

TEST_P(Communicators, OfSixtyFourNonBlockingSplitsInAGroupHaveTheirNamesAndHashes) {
  constexpr int kChildren = 64;
  std::vector<ncclComm_t> children(kChildren, nullptr);
  config_.comm_name = "child";
  group(true);
  for (int i = 0; i < kChildren; ++i) split(i, &children[i], &config_);
  group(false);
  for (auto& child : children) gather(wait_for(child));
  const auto found = known();
  std::map<std::uint64_t, int> hashes;
  for (const ncclComm_t child : children) {
    ASSERT_TRUE(found.contains(number(child)));
    const auto& comm = found.at(number(child));
    EXPECT_EQ(comm.name, "child");
    EXPECT_EQ(comm.parent, number(parent_));
    EXPECT_EQ(comm.collectives, 1u);
    ++hashes[comm.id_hash];
  }
  EXPECT_EQ(hashes.size(), static_cast<std::size_t>(kChildren));
  EXPECT_FALSE(hashes.contains(0));
  EXPECT_EQ(read().events_lost["pending_communicators_full"], 0u);
}

TEST_P(Communicators, PromisedToTheSameVariableOneAfterTheOtherAreToldApart) {
  std::vector<ncclComm_t> children;
  ncclComm_t variable = nullptr;
  for (int color = 0; color < 3; ++color) {
    split(color, &variable, &config_);
    children.push_back(wait_for(variable));
  }
  std::vector<std::uint64_t> hashes;
  for (const ncclComm_t child : children) gather(child);
  const auto found = known();
  for (const ncclComm_t child : children) hashes.push_back(found.at(number(child)).id_hash);
  EXPECT_NE(hashes[0], hashes[1]);
  EXPECT_NE(hashes[1], hashes[2]);
  EXPECT_EQ(std::count(hashes.begin(), hashes.end(), 0u), 0);
}

TEST_P(Communicators, PromisedToAVariableThatIsGoneAreKnownWhenTheProgramAskedInTime) {
  const auto made = [&] {
    ncclComm_t variable = nullptr;
    split(5, &variable, &config_);
    const ncclComm_t child = wait_for(variable);
    int state = 0;
    call<decltype(ncclCommGetAsyncError)>("ncclCommGetAsyncError")(child, &state);
    __atomic_store_n(&variable, nullptr, __ATOMIC_RELEASE);  // as the next function's locals would
    return child;
  };
  const ncclComm_t child = made();
  gather(child);
  EXPECT_NE(known().at(number(child)).id_hash, 0u);
}

TEST_P(Communicators, HaveTheSameHashOnARankWhereASplitBeforeHasFailed) {
  auto* control = call<stub_control>("stub_control");
  ncclComm_t one = nullptr, two = nullptr;
  control->every = 1;
  control->result = NCCL_SYSTEM_ERROR;
  ASSERT_NE(split(1, &one, nullptr), 0);
  control->every = 0;
  ASSERT_EQ(split(1, &one, nullptr), 0);
  const auto hash = known().at(number(one)).id_hash;
  // Another rank, where none has failed.
  ncclComm_t other = nullptr;
  ncclUniqueId id{};
  id.internal[0] = 7;
  ASSERT_EQ(call<decltype(ncclCommInitRank)>("ncclCommInitRank")(&other, kRanks, id, 4), 0);
  std::swap(parent_, other);
  ASSERT_EQ(split(1, &two, nullptr), 0);
  EXPECT_EQ(known().at(number(two)).id_hash, hash);
}

/// A call that is open when another thread ends its communicator.
TEST_P(Communicators, ThatAreAbortedInFlightLeaveNoGhost) {
  auto* set_hook = call<stub_set_hook_fn>("stub_set_hook");
  ncclComm_t child = nullptr;
  ASSERT_EQ(split(1, &child, nullptr), 0);
  static stub_control* control;
  static std::atomic<ncclComm_t> doomed;
  static int (*abort)(ncclComm_t);
  control = call<stub_control>("stub_control");
  control->result = NCCL_SYSTEM_ERROR;
  abort = call<decltype(ncclCommAbort)>("ncclCommAbort");
  // It fails late, so that the stub does not free what the open call goes on to read.
  const auto end_it = [](void*) {
    control->every = 1;
    std::thread([] { abort(doomed); }).join();
    control->every = 0;
  };
  for (const ncclComm_t comm : {parent_, child}) {
    doomed = comm;
    set_hook(end_it, nullptr);
    gather(comm);
  }
  EXPECT_TRUE(known().empty());
  // What a destroyed communicator of unknown size has counted is kept beside its process's own row.
  std::uint64_t bytes = totals("ncclAllGather").bytes;
  for (const auto& series : read().calls) {
    if (series.process.tgid == 0 &&
        model::find_api_function(series.function)->operation == "ncclAllGather")
      bytes += series.totals.bytes;
  }
  EXPECT_EQ(bytes, 100u * kRanks + 100) << "the child's ranks are not known";
}

TEST_P(Communicators, ThatManyThreadsUseBeforeTheyAreKnownCountEachCollective) {
  constexpr int kThreads = 4, kChildren = 50;
  std::vector<ncclComm_t> children(kChildren, nullptr);
  for (int i = 0; i < kChildren; ++i) {
    ncclComm_t& child = children[i];
    split(i, &child, &config_);
    wait_for(child);
    std::atomic<int> waiting{kThreads};
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&] {
        --waiting;
        while (waiting > 0) {
        }
        gather(child);
      });
    }
    for (auto& thread : threads) thread.join();
  }
  const auto found = known();
  for (const ncclComm_t child : children) {
    EXPECT_EQ(found.at(number(child)).collectives, static_cast<std::uint64_t>(kThreads));
    EXPECT_NE(found.at(number(child)).id_hash, 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Method, Communicators,
                         ::testing::Values(AttachMethod::kSession, AttachMethod::kPerf),
                         [](const auto& method) { return std::string(to_string(method.param)); });

}  // namespace
}  // namespace ingero::testing
