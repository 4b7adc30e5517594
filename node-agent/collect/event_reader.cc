// SPDX-License-Identifier: Apache-2.0
#include "collect/event_reader.h"

#include <bpf/libbpf.h>
#include <poll.h>

#include <cerrno>

namespace ingero::collect {

Result<std::unique_ptr<EventReader>> EventReader::create(int ring_map_fd, Handler handler) {
  std::unique_ptr<EventReader> reader(new EventReader(std::move(handler)));
  reader->ring_ = ring_buffer__new(ring_map_fd, &EventReader::on_record, reader.get(), nullptr);
  if (reader->ring_ == nullptr) return fail_errno("open ring buffer", "");
  return reader;
}

EventReader::~EventReader() { ring_buffer__free(ring_); }

int EventReader::descriptor() const { return ring_buffer__epoll_fd(ring_); }

bool EventReader::is_empty() const {
  pollfd ring{descriptor(), POLLIN, 0};
  return ::poll(&ring, 1, 0) == 0;
}

Turn EventReader::consume(const TurnLimit& limit) {
  limit_ = limit;
  turn_ = Turn::all;
  taken_ = 0;
  began_ = std::chrono::steady_clock::now();
  ring_buffer__consume(ring_);  // ends at the first record for which on_record() says so
  return turn_;
}

bool EventReader::is_at_limit() {
  if (++taken_ >= limit_.records) return true;
  return limit_.time != std::chrono::nanoseconds::max() &&
         std::chrono::steady_clock::now() - began_ >= limit_.time;
}

bool EventReader::take(const event_header& header, std::size_t size) {
  if (!handler_(header, size)) turn_ = Turn::refused;
  else if (is_at_limit()) turn_ = Turn::more;
  return turn_ == Turn::all;
}

/// libbpf counts the record as read, whatever is returned.
int EventReader::on_record(void* context, void* data, std::size_t size) {
  if (size < sizeof(event_header)) return 0;
  const auto& header = *static_cast<const event_header*>(data);
  return static_cast<EventReader*>(context)->take(header, size) ? 0 : -EAGAIN;
}

}  // namespace ingero::collect
