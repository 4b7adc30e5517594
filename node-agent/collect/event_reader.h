// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <limits>
#include <memory>

#include "base/result.h"
#include "bpf/wire.h"

struct ring_buffer;

namespace ingero::collect {

/// Where one turn of reading ends, though more may have come: who writes faster than the agent reads must not
/// keep it from all else.
struct TurnLimit {
  std::size_t records = std::numeric_limits<std::size_t>::max();
  std::chrono::nanoseconds time = std::chrono::nanoseconds::max();
};

enum class Turn {
  all,     ///< nothing is left
  more,    ///< the limit was reached
  refused  ///< the handler can take no more now
};

/// Reads one ring buffer of the BPF side.
class EventReader {
 public:
  /// Gets a record's header and its whole size in bytes; the memory is valid during the call only.
  /// Returns whether it can take another one now.
  using Handler = std::function<bool(const event_header& header, std::size_t size)>;

  static Result<std::unique_ptr<EventReader>> create(int ring_map_fd, Handler handler);
  ~EventReader();
  EventReader(const EventReader&) = delete;
  EventReader& operator=(const EventReader&) = delete;

  /// Readable when there is something; for an event loop.
  int descriptor() const;

  /// Whether nothing is there, not even a record that is being written.
  bool is_empty() const;
  /// How many records the last turn handed over.
  std::size_t taken() const { return taken_; }

  /// Hands over what is there, as long as the handler takes it and the limit is not reached.
  Turn consume(const TurnLimit& limit = {});

 private:
  explicit EventReader(Handler handler) : handler_(std::move(handler)) {}
  static int on_record(void* context, void* data, std::size_t size);
  bool take(const event_header& header, std::size_t size);
  bool is_at_limit();

  Handler handler_;
  ring_buffer* ring_ = nullptr;
  TurnLimit limit_;
  Turn turn_ = Turn::all;
  std::size_t taken_ = 0;
  std::chrono::steady_clock::time_point began_;
};

/// The record as its full type, or null when it is shorter than that.
template <typename Event>
const Event* event_as(const event_header& header, std::size_t size) {
  return size >= sizeof(Event) ? reinterpret_cast<const Event*>(&header) : nullptr;
}

}  // namespace ingero::collect
