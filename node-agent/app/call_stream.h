// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>

#include "attach/bpf_object.h"
#include "collect/event_reader.h"
#include "model/identity.h"

namespace ingero::app {

/// Who gets the events that the kernel streams, on the agent's thread.
struct StreamHandlers {
  /// Gets every call. Returns whether it can take another one now: if not, calls wait in the ring, which
  /// counts what finds it full.
  std::function<bool(const call_event&)> on_call;
  /// Gets every segment that TCP sent again, and the owner of its socket, if that is known.
  std::function<void(const tcp_event&, std::optional<model::CgroupId>)> on_retransmit;
  /// Gets waits for a processor.
  std::function<void(const wait_event&)> on_wait;
};

struct StreamOptions {
  /// Without an event for so long the reader sleeps until one wakes it, or for at most the second time.
  std::chrono::nanoseconds quiet{std::chrono::milliseconds(100)}, sleep{std::chrono::seconds(1)};
  StreamHandlers handlers;
  /// Waits for a processor and off-CPU spans of these lengths or more are streamed; 0: none.
  std::chrono::nanoseconds wait_threshold{0}, off_cpu_threshold{0};
  /// Whether the calls and waits of a cgroup are handed on.
  std::function<bool(model::CgroupId)> is_selected;
  /// Whose a socket is, by its cgroup and network namespace.
  std::function<std::optional<model::CgroupId>(model::CgroupId, std::uint32_t netns)> owner_of;
};

/// The stream of single events: its ring buffer, which takes memory only while somebody reads.
class CallStream {
 public:
  /// `bpf` must outlive the stream.
  CallStream(boost::asio::io_context& io, attach::BpfObject& bpf, StreamOptions options)
      : bpf_(bpf), options_(std::move(options)), timer_(io), descriptor_(io) {}
  ~CallStream() { close(); }
  CallStream(const CallStream&) = delete;
  CallStream& operator=(const CallStream&) = delete;

  /// From here on the ring takes events; poll() reads them. One that was to be closed stays open. An error:
  /// nothing is streamed.
  Status open();
  /// Reads every few milliseconds on the io_context's thread, and sleeps while nothing comes.
  void poll();
  /// Hands on what is there; false: the handler had enough before its end.
  bool drain();
  /// Nothing new is coming: gives the memory back once all that is there has been handed on.
  void close_when_empty();
  bool is_open() const { return reader_ != nullptr; }
  bool is_asleep() const { return asleep_; }

 private:
  Status make_ring();
  bool take(const event_header& header, std::size_t size) const;
  void poll_after(std::chrono::nanoseconds time);
  void sleep();
  void wake();
  void close();

  attach::BpfObject& bpf_;
  const StreamOptions options_;
  boost::asio::steady_timer timer_;
  std::unique_ptr<collect::EventReader> reader_;
  boost::asio::posix::stream_descriptor
      descriptor_;  ///< readable when a program has woken the reader
  std::chrono::steady_clock::time_point last_event_;
  bool closing_ = false;
  std::atomic<bool> asleep_ = false;
};

}  // namespace ingero::app
