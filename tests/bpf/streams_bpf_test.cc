// SPDX-License-Identifier: Apache-2.0
// Barriers: a collective that the host waits for, by a synchronize of its stream.
#include <thread>

#include "accounting_test.h"

namespace ingero::testing {
namespace {

using OneHandle = int(void*);
using OneInt = int(int);

void* stream_of(std::uintptr_t handle) { return reinterpret_cast<void*>(handle); }

class Barriers : public Accounting {
 protected:
  void SetUp() override {
    Accounting::SetUp();
    if (!bpf_) return;
    attach(nccl_, {"ncclCommInitAll", "ncclGetUniqueId", "ncclAllReduce"});
    attach(cudart_, {"cudaStreamSynchronize", "cudaStreamSynchronize_ptsz", "cudaSetDevice",
                     "cudaStreamDestroy"});
    ASSERT_EQ(nccl_.function<InitAll>("ncclCommInitAll")(comms_, kDevices, nullptr), 0);
  }

  void reduce(std::uintptr_t stream, int device = 0) {
    nccl_.function<AllReduce>("ncclAllReduce")(nullptr, nullptr, 1, kFloat32, 0, comms_[device],
                                               stream_of(stream));
  }
  void synchronize(std::uintptr_t stream, const char* symbol = "cudaStreamSynchronize") {
    cudart_.function<OneHandle>(symbol)(stream_of(stream));
  }
  std::uint64_t barriers() { return totals("ncclAllReduce").barriers; }

  static constexpr int kDevices = 8;
  StubLibrary nccl_ = StubLibrary::load(kStubs + "/push/libnccl.so.2");
  StubLibrary cudart_ = StubLibrary::load(kStubs + "/push/libcudart.so.13");
  void* comms_[kDevices] = {};
};

TEST_P(Barriers, OfTheDefaultStreamsOfEightDevicesAreEight) {
  auto* set_device = cudart_.function<OneInt>("cudaSetDevice");
  for (const bool thread_follows : {true, false}) {
    for (int device = 0; device < kDevices; ++device) {
      if (thread_follows) set_device(device);
      reduce(0, device);  // on the communicator's device, whatever the thread's is
    }
    for (int device = 0; device < kDevices; ++device) {
      set_device(device);
      synchronize(0);
      synchronize(0);
    }
  }
  EXPECT_EQ(barriers(), 2u * kDevices);
}

TEST_P(Barriers, TakeTheLegacyStreamForTheDefaultOne) {
  constexpr std::uintptr_t kLegacy = 1;
  reduce(0);
  synchronize(kLegacy);
  EXPECT_EQ(barriers(), 1u);
  reduce(kLegacy);
  synchronize(0, "cudaStreamSynchronize_ptsz");  // waits for this thread's stream, not for that one
  EXPECT_EQ(barriers(), 1u);
  synchronize(0);
  EXPECT_EQ(barriers(), 2u);
}

TEST_P(Barriers, OfPerThreadStreamsBelongToTheirThread) {
  constexpr std::uintptr_t kPerThread = 2;
  reduce(kPerThread);
  std::thread([&] { synchronize(kPerThread); }).join();
  EXPECT_EQ(barriers(), 0u);
  synchronize(0, "cudaStreamSynchronize_ptsz");
  EXPECT_EQ(barriers(), 1u);
}

TEST_P(Barriers, AreNotMadeByAnotherStreamOfTheSameHandle) {
  reduce(0x1000);
  cudart_.function<OneHandle>("cudaStreamDestroy")(stream_of(0x1000));
  synchronize(0x1000);
  EXPECT_EQ(barriers(), 0u);
}

TEST_P(Barriers, OfThreadsThatShareAStreamAreCountedOnceEach) {
  constexpr std::uint64_t kThreads = 2, kRounds = 10000;
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (std::uint64_t round = 0; round < kRounds; ++round) {
        reduce(0x1000);
        synchronize(0x1000);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_LE(barriers(), kThreads * kRounds);
  EXPECT_GE(barriers(), kRounds) << "each thread waited for its own, if not the other for both";
}

INSTANTIATE_TEST_SUITE_P(Method, Barriers,
                         ::testing::Values(AttachMethod::kSession, AttachMethod::kPerf),
                         [](const auto& method) { return std::string(to_string(method.param)); });

}  // namespace
}  // namespace ingero::testing
