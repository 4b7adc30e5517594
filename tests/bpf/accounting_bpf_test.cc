// SPDX-License-Identifier: Apache-2.0
// The kernel's counters against what this very process has called.
#include <map>
#include <thread>

#include "accounting_test.h"
#include "collect/event_reader.h"

namespace ingero::testing {
namespace {

TEST_P(Accounting, CopiesAreCountedWithBytesAndDirection) {
  const auto library = StubLibrary::load(kStubs + "/push/libcudart.so.13");
  attach(library, {"cudaMemcpy", "cudaMemcpy2D"});
  auto* copy = library.function<Memcpy>("cudaMemcpy");
  auto* copy_2d = library.function<Memcpy2D>("cudaMemcpy2D");
  char a[64], b[64];
  for (int i = 0; i < 10; ++i) copy(a, b, 48, COPY_H2D);
  for (int i = 0; i < 3; ++i) copy(a, b, 16, COPY_D2H);
  copy_2d(a, 8, b, 8, 4, 5, COPY_D2D);
  EXPECT_EQ(totals("cudaMemcpy", COPY_H2D).calls, 10u);
  EXPECT_EQ(totals("cudaMemcpy", COPY_D2H).calls, 3u);
  EXPECT_EQ(totals("cudaMemcpy2D", COPY_D2D).calls, 1u);
  if (entry_only()) return;  // sizes count only for calls known to have succeeded
  EXPECT_EQ(totals("cudaMemcpy", COPY_H2D).bytes, 480u);
  EXPECT_EQ(totals("cudaMemcpy", COPY_D2H).bytes, 48u);
  EXPECT_EQ(totals("cudaMemcpy2D", COPY_D2D).bytes, 20u);
}

TEST_P(Accounting, ThreadsThatCallAtTheSameTimeLoseNothing) {
  const auto library = StubLibrary::load(kStubs + "/push/libcudart.so.13");
  attach(library, {"cudaMemcpy"});
  auto* copy = library.function<Memcpy>("cudaMemcpy");
  constexpr std::uint64_t kThreads = 4, kCalls = 20000;
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([copy] {
      char a[8], b[8];
      for (std::uint64_t call = 0; call < kCalls; ++call) copy(a, b, 8, COPY_H2D);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(totals("cudaMemcpy").calls, kThreads * kCalls);
}

TEST_P(Accounting, ADetachedFileIsCountedNoMore) {
  const auto library = StubLibrary::load(kStubs + "/push/libcudart.so.13");
  attach(library, {"cudaMemcpy"});
  auto* copy = library.function<Memcpy>("cudaMemcpy");
  char a[8], b[8];
  copy(a, b, 8, COPY_H2D);
  probes_->detach(file_);
  probes_.reset();  // waits until the background has closed them
  copy(a, b, 8, COPY_H2D);
  EXPECT_EQ(totals("cudaMemcpy").calls, 1u);
}

INSTANTIATE_TEST_SUITE_P(Method, Accounting,
                         ::testing::Values(AttachMethod::kSession, AttachMethod::kMulti,
                                           AttachMethod::kPerf, AttachMethod::kEntryOnly),
                         [](const auto& method) { return std::string(to_string(method.param)); });

class Counters : public Accounting {};

TEST_P(Counters, EachCallLiesInTheBucketThatTheReaderExpects) {
  const auto library = StubLibrary::load(kStubs + "/push/libcudart.so.13");
  attach(library, {"cudaMemcpy"});
  auto* copy = library.function<Memcpy>("cudaMemcpy");
  model::DurationCounts expected{};
  auto reader =
      collect::EventReader::create(ring_, [&](const event_header& header, std::size_t size) {
        const auto* call = collect::event_as<call_event>(header, size);
        if (call != nullptr && call->header.tgid == static_cast<unsigned>(::getpid()))
          ++expected[model::duration_bucket(call->duration_ns)];
        return true;
      });
  ASSERT_TRUE(reader);
  char a[8], b[8];
  for (int i = 0; i < 2000; ++i) copy(a, b, 8, COPY_H2D);
  (*reader)->consume();
  EXPECT_EQ(totals("cudaMemcpy").durations, expected);
}

TEST_P(Counters, SizesOfCopiesLieInTheirBuckets) {
  const auto library = StubLibrary::load(kStubs + "/push/libcudart.so.13");
  attach(library, {"cudaMemcpy"});
  auto* copy = library.function<Memcpy>("cudaMemcpy");
  model::SizeCounts expected{};
  for (const std::size_t size : {0u, 1u, 1024u, 1025u, 4096u, 4097u, 1u << 20, (1u << 20) + 1}) {
    copy(nullptr, nullptr, size, COPY_H2D);
    std::size_t bucket = 0;
    while (static_cast<double>(size) > model::size_bucket_end(bucket)) ++bucket;
    ++expected[bucket];
  }
  EXPECT_EQ(totals("cudaMemcpy").sizes, expected);
}

TEST_P(Counters, ForgedSizesAreCountedAsCallsWithoutBytes) {
  const auto library = StubLibrary::load(kStubs + "/push/libcudart.so.13");
  attach(library, {"cudaMemcpy", "cudaMemcpy2D"});
  auto* copy = library.function<Memcpy>("cudaMemcpy");
  auto* copy_2d = library.function<Memcpy2D>("cudaMemcpy2D");
  copy(nullptr, nullptr, ~std::size_t{0}, COPY_H2D);
  copy_2d(nullptr, 1, nullptr, 1, 1ULL << 40, 1ULL << 40, COPY_H2D);
  copy(nullptr, nullptr, 100, 77);
  EXPECT_EQ(totals("cudaMemcpy").calls, 2u);
  EXPECT_EQ(totals("cudaMemcpy").bytes, 100u);
  EXPECT_EQ(totals("cudaMemcpy", COPY_UNKNOWN).calls, 1u);
  EXPECT_EQ(totals("cudaMemcpy2D").bytes, 0u);
  EXPECT_EQ(read().unattributed_calls["forged_size"], 2u);
}

TEST_P(Counters, ACommunicatorMakesSharesOfARankIntoMessageSizes) {
  const auto library = StubLibrary::load(kStubs + "/push/libnccl.so.2");
  attach(library, {"ncclCommInitAll", "ncclGetUniqueId", "ncclAllGather", "ncclAllReduce"});
  void* comms[4] = {};
  int devices[4] = {0, 1, 2, 3};
  ASSERT_EQ(library.function<InitAll>("ncclCommInitAll")(comms, 4, devices), 0);
  library.function<AllGather>("ncclAllGather")(nullptr, nullptr, 100, kBfloat16, comms[2], nullptr);
  library.function<AllReduce>("ncclAllReduce")(nullptr, nullptr, 100, kFloat32, 0, comms[1],
                                               nullptr);
  EXPECT_EQ(totals("ncclAllGather").bytes, 100u * 2 * 4);
  EXPECT_EQ(totals("ncclAllReduce").bytes, 100u * 4);
  const auto snapshot = read();
  ASSERT_EQ(snapshot.communicators.size(), 4u);
  for (const auto& comm : snapshot.communicators) {
    EXPECT_EQ(comm.nranks, 4u);
    EXPECT_EQ(comm.handle, reinterpret_cast<std::uint64_t>(comms[comm.rank]));
    EXPECT_EQ(comm.id_hash, snapshot.communicators[0].id_hash);
    EXPECT_EQ(comm.collectives, comm.rank == 1 || comm.rank == 2 ? 1u : 0u);
  }
}

TEST_P(Counters, SharesOfAnUnknownCommunicatorAreScaledWhenItsSizeIsLearned) {
  const auto library = StubLibrary::load(kStubs + "/push/libnccl.so.2");
  void* comms[4] = {};
  int devices[4] = {0, 1, 2, 3};
  ASSERT_EQ(library.function<InitAll>("ncclCommInitAll")(comms, 4, devices), 0);
  attach(
      library,
      {"ncclAllGather"});  // too late to see the communicators being made, and no layout is known
  auto* gather = library.function<AllGather>("ncclAllGather");
  gather(nullptr, nullptr, 100, kBfloat16, comms[3], nullptr);
  EXPECT_EQ(totals("ncclAllGather").bytes, 200u);
  EXPECT_EQ(read().unattributed_calls["unknown_communicator"], 1u);
  collect::CommLayouts layouts(bpf_->handles());
  collector_->set_resolver(&layouts);
  layouts.add_library(0, "2.28.9");  // index 0 stands for "none": nothing is learned from it
  EXPECT_EQ(totals("ncclAllGather").bytes, 200u);
}

TEST_P(Counters, ASynchronizeOfTheSameStreamMakesABarrier) {
  const auto nccl = StubLibrary::load(kStubs + "/push/libnccl.so.2");
  const auto cudart = StubLibrary::load(kStubs + "/push/libcudart.so.13");
  attach(nccl, {"ncclCommInitAll", "ncclAllReduce"});
  attach(cudart, {"cudaStreamSynchronize"});
  void* comm = nullptr;
  int device = 0;
  ASSERT_EQ(nccl.function<InitAll>("ncclCommInitAll")(&comm, 1, &device), 0);
  auto* reduce = nccl.function<AllReduce>("ncclAllReduce");
  auto* synchronize = cudart.function<Synchronize>("cudaStreamSynchronize");
  char stream_a, stream_b;
  reduce(nullptr, nullptr, 1, kFloat32, 0, comm, &stream_a);
  synchronize(&stream_b);
  EXPECT_EQ(totals("ncclAllReduce").barriers, 0u);
  synchronize(&stream_a);
  synchronize(&stream_a);
  EXPECT_EQ(totals("ncclAllReduce").barriers, 1u);
}

/// Nobody reads meanwhile: the ring is as full as one container can make it.
TEST_P(Counters, OneContainersEventsTakeNoMoreThanItsShareOfTheRingAndTheRestIsCounted) {
  constexpr std::size_t kShare = 1 << 21, kRing = 1 << 22;
  const auto library = StubLibrary::load(kStubs + "/push/libnccl.so.2");
  attach(library, {"ncclCommInitAll", "ncclCommDestroy"});
  auto* init = library.function<InitAll>("ncclCommInitAll");
  auto* destroy = library.function<int(void*)>("ncclCommDestroy");
  std::size_t events = 0, bytes = 0;
  auto reader = collect::EventReader::create(bpf_->handles().lifecycle_events,
                                             [&](const event_header&, std::size_t size) {
                                               ++events;
                                               bytes += size;
                                               return true;
                                             });
  ASSERT_TRUE(reader);
  const auto fill = [&] {
    const int device = 0;
    for (int i = 0; i < 8000; ++i) {
      void* comm = nullptr;
      ASSERT_EQ(init(&comm, 1, const_cast<int*>(&device)), 0);
      ASSERT_EQ(destroy(comm), 0);
    }
  };
  fill();
  EXPECT_EQ((*reader)->consume(), collect::Turn::all);
  EXPECT_GT(events, 0u);
  EXPECT_LE(bytes, kShare + sizeof(process_seen_event)) << "of " << kRing;
  EXPECT_GT(read().events_lost.at("lifecycle_ring_full"), 0u);
  const std::size_t before = events;
  fill();
  (*reader)->consume();
  EXPECT_GT(events, before) << "what was read makes room";
}

TEST_P(Counters, AFloodOfEventsIsReadInTurns) {
  const auto library = StubLibrary::load(kStubs + "/push/libcudart.so.13");
  attach(library, {"cudaMemcpy"});
  auto* copy = library.function<Memcpy>("cudaMemcpy");
  std::size_t events = 0;
  char a[8], b[8];
  auto reader = collect::EventReader::create(ring_, [&](const event_header&, std::size_t) {
    ++events;
    copy(a, b, 8, COPY_H2D);  // each event that is read makes another one
    return true;
  });
  ASSERT_TRUE(reader);
  copy(a, b, 8, COPY_H2D);
  EXPECT_EQ((*reader)->consume({100, std::chrono::seconds(60)}), collect::Turn::more);
  EXPECT_EQ(events, 100u);
  EXPECT_EQ((*reader)->consume({1u << 30, std::chrono::milliseconds(1)}), collect::Turn::more);
  EXPECT_GT(events, 100u);
}

TEST_P(Counters, EndedProcessesLeaveTheirTotalsAndNoMapEntries) {
  const auto library = StubLibrary::load(kStubs + "/push/libcudart.so.13");
  attach(library, {"cudaMemcpy"});
  auto* copy = library.function<Memcpy>("cudaMemcpy");
  char a[8], b[8];
  copy(a, b, 8, COPY_H2D);
  const auto before = read();
  ASSERT_EQ(before.calls.size(), 1u);
  collector_->process_ended(before.calls[0].process);
  const auto after = read();
  ASSERT_EQ(after.calls.size(), 1u);
  EXPECT_EQ(after.calls[0].process.tgid, 0u);
  EXPECT_EQ(after.calls[0].totals.calls, 1u);
  const auto again = read();
  EXPECT_EQ(again.calls[0].totals.bytes, 8u);
  call_key key{};
  EXPECT_NE(bpf_map_get_next_key(bpf_->handles().calls, nullptr, &key), 0)
      << "the map is not empty";
}

TEST_P(Counters, RetransmissionsOfNobodyLeaveTheMap) {
  const std::uint64_t segments = 5;
  const retransmit_key mine{7, 1, 2}, strangers{8, 1, 10};
  for (const retransmit_key& key : {mine, strangers})
    ASSERT_EQ(bpf_map_update_elem(bpf_->handles().retransmits, &key, &segments, BPF_ANY), 0);
  auto rows = read().retransmits;
  ASSERT_EQ(rows.size(), 2u);
  std::erase_if(rows, [](const auto& row) { return row.cgroup == model::CgroupId{7}; });
  collector_->drop_retransmits(rows);
  rows = read().retransmits;
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].cgroup, model::CgroupId{7});
  EXPECT_EQ(rows[0].segments, segments);
}

// ---- policies ------------------------------------------------------------------------------------

/// What this process's cgroup may count from now on.
class Policies : public Accounting {
 protected:
  void apply(cgroup_policy policy) {
    if (cgroup_ == 0) {
      for (const auto& series : read().calls) {
        if (series.process.tgid == static_cast<unsigned>(::getpid()))
          cgroup_ = to_number(series.cgroup);
      }
    }
    ASSERT_NE(cgroup_, 0u) << "one call must come first";
    ASSERT_EQ(bpf_map_update_elem(bpf_->handles().policies, &cgroup_, &policy, BPF_ANY), 0);
    bpf_->policies_changed();
  }

  std::uint64_t cgroup_ = 0;
};

constexpr cgroup_policy kNothing{};
constexpr cgroup_policy kEverything{~0ULL, 0, 1, 0};

TEST_P(Policies, CountExactlyTheCallsWhileTheyCover) {
  const auto library = StubLibrary::load(kStubs + "/push/libcudart.so.13");
  attach(library, {"cudaMemcpy"});
  auto* copy = library.function<Memcpy>("cudaMemcpy");
  char a[8], b[8];
  const auto calls = [&](int n) {
    for (int i = 0; i < n; ++i) copy(a, b, 8, COPY_H2D);
  };
  calls(3);
  apply(kNothing);
  calls(50);
  EXPECT_EQ(totals("cudaMemcpy").calls, 3u);
  apply(kEverything);
  calls(4);
  apply(kNothing);
  calls(50);
  EXPECT_EQ(totals("cudaMemcpy").calls, 7u);
}

TEST_P(Policies, ThatLeaveACollectiveOutFollowItsSequenceAndHideTheCopiesInside) {
  const auto nccl = StubLibrary::load(kStubs + "/push/libnccl.so.2");
  attach(nccl, {"ncclCommInitAll", "ncclAllReduce", "ncclBcast", "ncclBroadcast"});
  void* comm = nullptr;
  int device = 0;
  ASSERT_EQ(nccl.function<InitAll>("ncclCommInitAll")(&comm, 1, &device), 0);
  constexpr int kBroadcast = 5;  // inside ncclBcast
  apply({1ULL << kBroadcast, 0, 0, 0});
  nccl.function<AllReduce>("ncclAllReduce")(nullptr, nullptr, 1, kFloat32, 0, comm, nullptr);
  using Bcast = int(void*, std::size_t, int, int, void*, void*);
  nccl.function<Bcast>("ncclBcast")(nullptr, 1, kFloat32, 0, comm, nullptr);
  EXPECT_EQ(totals("ncclAllReduce").calls, 0u);
  EXPECT_EQ(totals("ncclBroadcast").calls, 0u) << "it is ncclBcast that was called";
  const auto snapshot = read();
  ASSERT_EQ(snapshot.communicators.size(), 1u);
  EXPECT_EQ(snapshot.communicators[0].collectives, 2u);
}

TEST_P(Policies, CountTheCallsAboveTheirThreshold) {
  const auto library = StubLibrary::load(kStubs + "/push/libcudart.so.13");
  attach(library, {"cudaMemcpy"});
  auto* copy = library.function<Memcpy>("cudaMemcpy");
  char a[8], b[8];
  copy(a, b, 8, COPY_H2D);
  EXPECT_EQ(totals("cudaMemcpy").slow, 0u);
  apply({~0ULL, 1, 1, 0});
  copy(a, b, 8, COPY_H2D);
  EXPECT_EQ(totals("cudaMemcpy").slow, 1u);
  apply({~0ULL, 3'600'000'000'000, 1, 0});
  copy(a, b, 8, COPY_H2D);
  EXPECT_EQ(totals("cudaMemcpy").slow, 1u);
  EXPECT_EQ(totals("cudaMemcpy").calls, 3u);
}

TEST_P(Policies, OfTheUnclassifiedHoldUntilACgroupHasItsOwn) {
  const auto library = StubLibrary::load(kStubs + "/push/libcudart.so.13");
  attach(library, {"cudaMemcpy"});
  auto* copy = library.function<Memcpy>("cudaMemcpy");
  char a[8], b[8];
  copy(a, b, 8, COPY_H2D);
  apply(kEverything);
  bpf_->set_unclassified(kNothing);
  copy(a, b, 8, COPY_H2D);
  EXPECT_EQ(totals("cudaMemcpy").calls, 2u);
  ASSERT_EQ(bpf_map_delete_elem(bpf_->handles().policies, &cgroup_), 0);
  bpf_->policies_changed();
  copy(a, b, 8, COPY_H2D);
  EXPECT_EQ(totals("cudaMemcpy").calls, 2u);
}

INSTANTIATE_TEST_SUITE_P(Method, Policies,
                         ::testing::Values(AttachMethod::kSession, AttachMethod::kMulti,
                                           AttachMethod::kPerf),
                         [](const auto& method) { return std::string(to_string(method.param)); });

INSTANTIATE_TEST_SUITE_P(Method, Counters,
                         ::testing::Values(AttachMethod::kSession, AttachMethod::kPerf),
                         [](const auto& method) { return std::string(to_string(method.param)); });

}  // namespace
}  // namespace ingero::testing
