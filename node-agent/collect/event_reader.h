// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>

#include "base/result.h"
#include "bpf/wire.h"

struct ring_buffer;

namespace ingero::collect {

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

  /// Hands over what is there now, as long as the handler takes it; the number of records, or negative
  /// when the handler had enough.
  int consume();

 private:
  explicit EventReader(Handler handler) : handler_(std::move(handler)) {}
  static int on_record(void* context, void* data, std::size_t size);

  Handler handler_;
  ring_buffer* ring_ = nullptr;
};

/// The record as its full type, or null when it is shorter than that.
template <typename Event>
const Event* event_as(const event_header& header, std::size_t size) {
  return size >= sizeof(Event) ? reinterpret_cast<const Event*>(&header) : nullptr;
}

}  // namespace ingero::collect
