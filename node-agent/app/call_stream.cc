// SPDX-License-Identifier: Apache-2.0
#include "app/call_stream.h"

#include <chrono>

namespace ingero::app {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kRingBytes = 32 << 20;
constexpr auto kPollInterval = 5ms;

}  // namespace

Status CallStream::open() {
  closing_ = false;
  if (reader_) return {};
  const auto ring = bpf_.open_stream(kRingBytes);
  if (!ring) return fail(ring.error());
  auto reader = collect::EventReader::create(*ring, handler_);
  if (!reader) {
    bpf_.close_stream();
    return fail(reader.error());
  }
  reader_ = std::move(*reader);
  return {};
}

void CallStream::poll() {
  if (drain() && closing_) {
    close();
    return;
  }
  timer_.expires_after(kPollInterval);
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error && reader_) poll();
  });
}

void CallStream::close() {
  if (!reader_) return;
  timer_.cancel();
  bpf_.close_stream();
  reader_.reset();
}

}  // namespace ingero::app
