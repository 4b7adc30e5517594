// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"

namespace ingero::exporting {

struct HttpOptions {
  std::string host;  ///< address or name without brackets; empty: all interfaces, IPv4 and IPv6
  std::uint16_t port = 0;   ///< 0: the kernel chooses
  std::size_t threads = 4;  ///< requests served at once
  std::chrono::seconds read_timeout{5};
  std::chrono::seconds write_timeout{10};
  /// An idle connection occupies a thread for so long; stop() may wait as long.
  std::chrono::seconds keep_alive_timeout{1};
};

struct Readiness {
  bool ready = false;
  std::string reason;  ///< what is waited for, or anything worth saying
};

/// Called from the server's threads, several at once. An error or exception becomes a 500.
struct HttpHandlers {
  std::function<Result<std::string>()> metrics;      ///< body of /metrics
  std::function<Readiness()> readiness;              ///< /readyz: 200 or 503
  std::function<Result<std::string>()> debug_state;  ///< JSON body of /debug/state
};

/// Serves /metrics, /healthz, /readyz, /debug/state and an index until it is stopped or destroyed.
/// A process that has one ignores SIGPIPE (cpp-httplib sets that).
class HttpServer {
 public:
  /// Binds and begins to serve. An error names the address and says why.
  static Result<std::unique_ptr<HttpServer>> create(HttpOptions options, HttpHandlers handlers);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  /// The port that is bound.
  std::uint16_t port() const;

  /// Ends requests in progress, closes the port and joins the threads. Can be called again.
  void stop();

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ingero::exporting
