// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ingero {

// Numbers for people. Machines get the plain number.

/// "1,234,567".
std::string format_count(std::uint64_t value);
/// "512 B", "1.50 MiB": three significant digits, powers of 1024.
std::string format_bytes(double bytes);
/// "12.3 MiB/s".
std::string format_byte_rate(double bytes_per_second);
/// "0.50/s", "12.3/s", "12,345/s".
std::string format_rate(double per_second);
/// "840 ns", "12.3 us", "4.56 ms", "1.20 s", "2m05s", "3h07m".
std::string format_duration_ns(std::uint64_t ns);

// Text of others: process names, paths and pod labels can hold anything.

/// For a terminal, a log line or a label value: control characters, bytes that are not UTF-8, and
/// characters that reorder or hide text become \xNN per byte. The result is valid UTF-8 on one
/// line. A backslash stays as it is (systemd's unit names are full of them).
std::string escape_terminal(std::string_view text);
/// The inside of a JSON string, without the quotes. Bytes that are not UTF-8 become U+FFFD.
std::string escape_json(std::string_view text);

/// At most `width` characters (UTF-8 code points), the last one an ellipsis if something was cut
/// off.
std::string truncate(std::string_view text, std::size_t width);
/// The first 12 characters of a container id, as container tools show it, without an ellipsis.
std::string short_id(std::string_view id);

}  // namespace ingero
