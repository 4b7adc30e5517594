// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace ingero::exporting {

struct Listener {
  UniqueFd fd;
  std::uint16_t port = 0;
};

/// Binds and listens on TCP. Empty host: all interfaces, IPv6 and IPv4 on one socket, or IPv4 alone
/// on a machine without IPv6. Never shares a port with another process.
Result<Listener> listen_tcp(const std::string& host, std::uint16_t port);

}  // namespace ingero::exporting
