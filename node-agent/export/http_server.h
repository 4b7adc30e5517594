// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "export/http_connection.h"

namespace ingero::exporting {

struct HttpOptions {
  std::string host;  ///< address or name without brackets; empty: all interfaces, IPv4 and IPv6
  std::uint16_t port = 0;  ///< 0: the kernel chooses
  /// Clients at once. One more takes the place of one of the address that has the most.
  std::size_t max_connections = 64;
  /// Pages that slow clients keep from being freed; beyond, the clients of the oldest are given up.
  std::size_t max_body_bytes = std::size_t{64} << 20;
  HttpLimits limits;
};

struct Readiness {
  bool ready = false;
  std::string reason;  ///< what is waited for, or anything worth saying
};

/// An error or exception becomes a 500. Each is called from one thread at a time, the three that make
/// pages beside each other.
struct HttpHandlers {
  std::function<Result<std::string>()> metrics;      ///< body of /metrics
  std::function<Readiness()> readiness;              ///< /readyz: 200 or 503
  std::function<Result<std::string>()> debug_state;  ///< JSON body of /debug/state
  /// /healthz: 200 or 503; none: always 200. From the thread that serves all: must not wait.
  std::function<Readiness()> liveness;
};

/// Serves /metrics, /healthz, /readyz, /debug/state and an index until it is stopped or destroyed.
/// A request is its line and headers, and nothing that clients do costs more than a bounded piece of
/// memory or the time of others (docs/adr/0007).
class HttpServer {
 public:
  /// Binds and begins to serve. An error names the address and says why.
  static Result<std::unique_ptr<HttpServer>> create(HttpOptions options, HttpHandlers handlers);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  /// The port that is bound.
  std::uint16_t port() const;

  /// Closes the port and all connections, and waits for pages that are being made. Can be called
  /// again.
  void stop();

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ingero::exporting
