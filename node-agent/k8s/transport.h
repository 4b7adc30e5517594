// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <stop_token>
#include <string>
#include <string_view>

#include "base/result.h"

namespace ingero::k8s {

/// Gets one line without its end; false ends the stream.
using LineSink = std::function<bool(std::string_view line)>;

/// What an informer asks of the API server. Both calls return within a second of a stop request
/// (the look-up of a host name excepted), and neither throws.
class Transport {
 public:
  virtual ~Transport() = default;

  /// The body of a GET that was answered with 200.
  virtual Result<std::string> get(const std::string& path, std::stop_token stop) = 0;

  /// Streams the lines of a watch until the server ends it or `on_line` says so. An error: refused,
  /// cut in the middle (a line that was cut is not delivered), longer than `limit`, or stopped.
  virtual Status watch(const std::string& path, std::chrono::seconds limit, const LineSink& on_line,
                       std::stop_token stop) = 0;
};

// Error::code of a transport's errors is the HTTP status of the answer; 0: there was no answer.
inline constexpr int kHttpBadRequest = 400;
inline constexpr int kHttpUnauthorized = 401;
inline constexpr int kHttpForbidden = 403;
inline constexpr int kHttpNotFound = 404;
inline constexpr int kHttpConflict = 409;
inline constexpr int kHttpGone = 410;
inline constexpr int kHttpTooManyRequests = 429;
inline constexpr int kHttpGatewayTimeout = 504;

}  // namespace ingero::k8s
