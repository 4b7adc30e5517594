// SPDX-License-Identifier: Apache-2.0
#include "collect/event_reader.h"

#include <bpf/libbpf.h>

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

int EventReader::consume() { return ring_buffer__consume(ring_); }

int EventReader::on_record(void* context, void* data, std::size_t size) {
  if (size < sizeof(event_header)) return 0;
  const auto& header = *static_cast<const event_header*>(data);
  return static_cast<EventReader*>(context)->handler_(header, size) ? 0 : -EAGAIN;
}

}  // namespace ingero::collect
