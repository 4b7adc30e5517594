// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
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

/// The stream of single events: its ring buffer, which takes memory only while somebody reads.
class CallStream {
 public:
  /// Takes an event of any kind; false: it can take no more, and the next ones wait in the ring.
  using Handler = collect::EventReader::Handler;

  /// `bpf` must outlive the stream.
  CallStream(boost::asio::io_context& io, attach::BpfObject& bpf, Handler handler)
      : bpf_(bpf), handler_(std::move(handler)), timer_(io) {}
  ~CallStream() { close(); }
  CallStream(const CallStream&) = delete;
  CallStream& operator=(const CallStream&) = delete;

  /// From here on the ring takes events; poll() reads them. One that was to be closed stays open.
  Status open();
  /// Reads every few milliseconds on the io_context's thread.
  void poll();
  /// Hands on what is there; false: the handler had enough before its end.
  bool drain() { return !reader_ || reader_->consume() >= 0; }
  /// Nothing new is coming: gives the memory back once all that is there has been handed on.
  void close_when_empty() { closing_ = true; }
  bool is_open() const { return reader_ != nullptr; }

 private:
  void close();

  attach::BpfObject& bpf_;
  Handler handler_;
  boost::asio::steady_timer timer_;
  std::unique_ptr<collect::EventReader> reader_;
  bool closing_ = false;
};

}  // namespace ingero::app
