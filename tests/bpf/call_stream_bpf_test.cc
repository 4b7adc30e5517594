// SPDX-License-Identifier: Apache-2.0
// The stream of calls from the programs to a reader that sleeps: woken once, and nothing is lost.
#include <sys/epoll.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <random>
#include <set>
#include <thread>

#include "accounting_test.h"
#include "app/call_stream.h"

namespace ingero {
namespace {

using namespace std::chrono_literals;
using testing::Memcpy;
using testing::StubLibrary;

/// No test waits so long: what comes has come by a wake-up.
constexpr auto kForever = 1h;
constexpr auto kPatience = 20s;

template <typename Condition>
bool comes_true(const Condition& condition) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(100us);
  }
  return true;
}

class Stream : public testing::Accounting {
 protected:
  void SetUp() override {
    Accounting::SetUp();
    if (HasFatalFailure()) return;
    library_.emplace(StubLibrary::load(testing::kStubs + "/push/libcudart.so.13"));
    attach(*library_, {"cudaMemcpy"});
    memcpy_ = library_->function<Memcpy>("cudaMemcpy");
  }

  /// Calls of different sizes, so that each is known when it is read.
  void call(std::size_t count) {
    static char a[64], b[64];
    for (std::size_t i = 0; i < count; ++i) memcpy_(a, b, ++made_, 1);
  }

  std::uint64_t lost() { return read().events_lost.at("call_stream_full"); }

  std::optional<StubLibrary> library_;
  Memcpy* memcpy_ = nullptr;
  std::size_t made_ = 0;
};

/// The agent's own reader, on a thread of its own.
class Reader {
 public:
  Reader(attach::BpfObject& bpf, std::chrono::nanoseconds quiet) {
    app::StreamOptions options;
    options.quiet = quiet;
    options.sleep = kForever;
    options.is_selected = [](model::CgroupId) { return true; };
    options.owner_of = [](model::CgroupId, std::uint32_t) { return std::nullopt; };
    options.handlers.on_call = [this](const call_event& event) {
      last_ = event.bytes;
      ++seen_;
      return true;
    };
    stream_.emplace(io_, bpf, std::move(options));
    const auto opened = stream_->open();
    EXPECT_TRUE(opened) << opened.error().message();
    stream_->poll();
    thread_ = std::thread([this] { io_.run(); });
  }
  ~Reader() {
    io_.stop();
    thread_.join();
  }

  bool sleeps() const { return stream_->is_asleep(); }
  std::size_t seen() const { return seen_; }
  std::uint64_t last() const { return last_; }

 private:
  boost::asio::io_context io_;
  std::optional<app::CallStream> stream_;
  std::atomic<std::size_t> seen_ = 0;
  std::atomic<std::uint64_t> last_ = 0;
  std::thread thread_;
};

/// Counts how often waiters on the ring are woken: edges, not the state.
class Edges {
 public:
  explicit Edges(int ring) : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
    epoll_event event{EPOLLIN | EPOLLET, {}};
    EXPECT_EQ(::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, ring, &event), 0);
    seen();
  }
  /// Whether there was one since the last look. One comes by an interrupt: not before `wait`.
  bool seen(std::chrono::milliseconds wait = 0ms) const {
    epoll_event event{};
    return ::epoll_wait(epoll_.get(), &event, 1, static_cast<int>(wait.count())) == 1;
  }

 private:
  UniqueFd epoll_;
};

TEST_P(Stream, ASleeperIsWokenByTheNextCallAndGetsEachOne) {
  Reader reader(*bpf_, 1ms);
  for (const std::size_t calls : {1u, 1u, 100u, 20'000u, 1u}) {
    ASSERT_TRUE(comes_true([&] { return reader.sleeps(); }));
    call(calls);
    ASSERT_TRUE(comes_true([&] { return reader.seen() == made_; }))
        << reader.seen() << " of " << made_;
    EXPECT_EQ(reader.last(), made_);
  }
  EXPECT_EQ(lost(), 0u);
}

/// Calls that come while the reader goes to sleep: it must see each, or be woken.
TEST_P(Stream, NoWakeUpIsLostWhereTheReaderGoesToSleep) {
  Reader reader(*bpf_, 0ns);
  std::mt19937 random(1);
  const auto end = std::chrono::steady_clock::now() + 3s;
  std::size_t slept = 0;
  while (std::chrono::steady_clock::now() < end) {
    call(1 + random() % 3);
    const auto pause =
        std::chrono::steady_clock::now() + std::chrono::nanoseconds(random() % 200'000);
    while (std::chrono::steady_clock::now() < pause) {
    }
    ASSERT_TRUE(comes_true([&] { return reader.seen() == made_; }))
        << reader.seen() << " of " << made_;
    slept += reader.sleeps() ? 1 : 0;
  }
  EXPECT_GT(slept, 0u);
  EXPECT_EQ(lost(), 0u);
}

TEST_P(Stream, NobodyIsWokenWhoDoesNotSleepAndASleeperOnce) {
  const Edges edges(ring_);
  call(2000);  // several times 64 KiB
  EXPECT_FALSE(edges.seen(50ms)) << "nobody asked for it";
  bpf_->wake_stream_reader(true);
  call(1);
  EXPECT_TRUE(edges.seen(10s));
  call(2000);
  EXPECT_FALSE(edges.seen(50ms)) << "one is enough";
  bpf_->wake_stream_reader(true);
  bpf_->wake_stream_reader(false);
  call(1);
  EXPECT_FALSE(edges.seen(50ms)) << "the wish was taken back";
}

TEST_P(Stream, AFullRingLosesWhatItCountsAndWakesAgain) {
  std::size_t seen = 0;
  auto reader = collect::EventReader::create(ring_, [&](const event_header&, std::size_t) {
    ++seen;
    return true;
  });
  ASSERT_TRUE(reader);
  for (int round = 0; round < 3; ++round) {
    const Edges edges(ring_);
    bpf_->wake_stream_reader(true);
    EXPECT_TRUE((*reader)->is_empty());
    call(20'000);  // more than the ring has room for
    EXPECT_TRUE(edges.seen(10s));
    EXPECT_FALSE((*reader)->is_empty());
    const std::size_t before = seen;
    EXPECT_EQ((*reader)->consume(), collect::Turn::all);
    EXPECT_GT(seen, before);
    EXPECT_EQ((*reader)->taken(), seen - before);
    EXPECT_EQ(seen + lost(), made_);
  }
  EXPECT_GT(lost(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Methods, Stream,
                         ::testing::Values(testing::AttachMethod::kSession,
                                           testing::AttachMethod::kPerf),
                         [](const auto& method) { return std::string(to_string(method.param)); });

}  // namespace
}  // namespace ingero
