// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string_view>

#include "bpf/wire.h"

namespace ingero::cli {

/// Title of the lines that append_call_text() writes, with the line feed.
std::string_view call_text_header();

/// Appends one line for people: time of day (UTC, microseconds), pid, tid, container, function,
/// elements, datatype or copy direction, bytes, result, host latency; for NCCL also rank and
/// communicator. `unix_ns` is the start of the call, `container` the full id or path, from whatever
/// source.
void append_call_text(fmt::memory_buffer& out, const call_event& event, std::int64_t unix_ns,
                      std::string_view container);

/// Appends one JSON object and a line feed. What a call does not have is "" (text) or null
/// (numbers): a rank that is not known, the datatype of a copy, the root of an AllReduce.
void append_call_json(fmt::memory_buffer& out, const call_event& event, std::int64_t unix_ns,
                      std::string_view container);

}  // namespace ingero::cli
