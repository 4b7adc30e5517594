// SPDX-License-Identifier: Apache-2.0
#include "app/call_stream.h"

#include <unistd.h>

#include <chrono>

namespace ingero::app {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kRingBytes = 32 << 20;
constexpr auto kPollInterval = 5ms;
/// Of the loop's time, when there are more calls than it can read.
constexpr collect::TurnLimit kTurn{16384, 20ms};
/// More than the ring holds: what comes while it is emptied is left.
constexpr collect::TurnLimit kWholeRing{kRingBytes / sizeof(event_header),
                                        std::chrono::nanoseconds::max()};

}  // namespace

Status CallStream::open() {
  closing_ = false;
  if (auto made = make_ring(); !made) return made;
  const StreamHandlers& handlers = options_.handlers;
  const auto threshold = [&](std::chrono::nanoseconds time) {
    return handlers.on_wait ? static_cast<std::uint64_t>(time.count()) : 0;
  };
  return bpf_.stream_host_events(handlers.on_retransmit != nullptr,
                                 threshold(options_.wait_threshold),
                                 threshold(options_.off_cpu_threshold));
}

Status CallStream::make_ring() {
  if (reader_) return {};
  const auto ring = bpf_.open_stream(kRingBytes);
  if (!ring) return fail(ring.error());
  auto reader = collect::EventReader::create(
      *ring, [this](const event_header& header, std::size_t size) { return take(header, size); });
  if (!reader) {
    bpf_.close_stream();
    return fail(reader.error());
  }
  reader_ = std::move(*reader);
  descriptor_.assign(::dup(reader_->descriptor()));
  last_event_ = std::chrono::steady_clock::now();
  return {};
}

/// Returns whether another event can be taken now.
bool CallStream::take(const event_header& header, std::size_t size) const {
  const StreamHandlers& handlers = options_.handlers;
  const auto cgroup = static_cast<model::CgroupId>(header.cgroup_id);
  switch (header.kind) {
    case EVENT_CALL: {
      const auto* call = collect::event_as<call_event>(header, size);
      return call == nullptr || !options_.is_selected(cgroup) || handlers.on_call(*call);
    }
    case EVENT_TCP_RETRANSMIT: {
      const auto* event = collect::event_as<tcp_event>(header, size);
      if (event != nullptr && handlers.on_retransmit)
        handlers.on_retransmit(*event, options_.owner_of(cgroup, event->netns));
      return true;
    }
    case EVENT_RUN_QUEUE_WAIT:
    case EVENT_OFF_CPU: {
      const auto* event = collect::event_as<wait_event>(header, size);
      if (event != nullptr && handlers.on_wait && options_.is_selected(cgroup))
        handlers.on_wait(*event);
      return true;
    }
    default: return true;
  }
}

void CallStream::close_when_empty() {
  static_cast<void>(bpf_.stream_host_events(false, 0, 0));  // takes programs off: cannot fail
  closing_ = true;
  if (asleep_) wake();
}

bool CallStream::drain() {
  return !reader_ || reader_->consume(kWholeRing) != collect::Turn::refused;
}

void CallStream::poll() {
  const collect::Turn turn = reader_->consume(kTurn);
  if (turn == collect::Turn::all && closing_) {
    close();
    return;
  }
  const auto now = std::chrono::steady_clock::now();
  if (reader_->taken() != 0 || turn != collect::Turn::all) last_event_ = now;
  if (now - last_event_ >= options_.quiet) sleep();
  else poll_after(turn == collect::Turn::more ? 0ns : kPollInterval);
}

void CallStream::poll_after(std::chrono::nanoseconds time) {
  timer_.expires_after(time);
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error && reader_) poll();
  });
}

/// The order matters: a program that does not see the wish has reserved its record before the look.
void CallStream::sleep() {
  bpf_.wake_stream_reader(true);
  if (!reader_->is_empty()) {
    bpf_.wake_stream_reader(false);
    poll_after(kPollInterval);
    return;
  }
  asleep_ = true;
  descriptor_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                         [this](const boost::system::error_code& error) {
                           if (!error && asleep_) wake();
                         });
  timer_.expires_after(options_.sleep);
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error && asleep_) wake();
  });
}

void CallStream::wake() {
  asleep_ = false;
  bpf_.wake_stream_reader(false);
  timer_.cancel();
  descriptor_.cancel();
  if (reader_) poll();
}

void CallStream::close() {
  if (!reader_) return;
  asleep_ = false;
  bpf_.wake_stream_reader(false);
  timer_.cancel();
  descriptor_.close();
  bpf_.close_stream();
  reader_.reset();
}

}  // namespace ingero::app
