// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace ingero {

/// Where a server listens.
struct ListenAddress {
  std::string host;  ///< address or name, without brackets; empty: all interfaces, IPv4 and IPv6
  std::uint16_t port = 0;  ///< 0: the kernel chooses a free one
  bool operator==(const ListenAddress&) const = default;
};

/// Reads ":9090", "9090", "127.0.0.1:9090", "[::1]:9090" or "localhost:9090". Names are not looked
/// up. The error says what is wrong and shows a form that works.
Result<ListenAddress> parse_listen_address(std::string_view text);

/// The form that parse_listen_address() reads: IPv6 addresses in brackets, ":9090" for all
/// interfaces.
std::string to_string(const ListenAddress& address);

}  // namespace ingero
