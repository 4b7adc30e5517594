// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

#include "base/result.h"
#include "k8s/credentials.h"
#include "k8s/transport.h"
#include "k8s/writer.h"

namespace ingero::k8s {

struct ApiClientOptions {
  std::chrono::seconds connect_timeout{2};  ///< also per step of the TLS handshake
  std::chrono::seconds read_timeout{15};    ///< longest silence within an answer
  std::chrono::seconds request_limit{30};   ///< for a whole GET or write
  /// Longest silence of a watch. The API server sends a bookmark about every minute.
  std::chrono::seconds watch_silence{150};
  std::size_t max_body_bytes = 64 * 1024 * 1024;
  std::size_t max_line_bytes = 8 * 1024 * 1024;  ///< etcd holds objects up to 1.5 MB
  std::string user_agent = "ingero";
};

/// Talks to the API server, one connection per request, so that a rotated token, certificate or
/// authority holds at the next one. Thread safe. Nothing is thrown.
///
/// Errors carry the HTTP status as their code (transport.h) and the message of the server's Status
/// object, which for 403 names the verb and the resource. A process that has a client ignores
/// SIGPIPE: OpenSSL writes to connections that the server may have closed.
class ApiClient final : public Transport, public Writer {
 public:
  explicit ApiClient(Credentials credentials, ApiClientOptions options = {});

  const Credentials& credentials() const { return credentials_; }

  Result<std::string> get(const std::string& path, std::stop_token stop) override;
  Status watch(const std::string& path, std::chrono::seconds limit, const LineSink& on_line,
               std::stop_token stop) override;

  Result<nlohmann::json> send(WriteMethod method, const std::string& path,
                              const nlohmann::json& body, BodyType type,
                              std::stop_token stop) override;

  /// get(), parsed.
  Result<nlohmann::json> get_json(const std::string& path, std::stop_token stop = {});

 private:
  const Credentials credentials_;
  const ApiClientOptions options_;
};

/// The error of an answer that is no success; `body` is a Status object, or anything.
Error make_http_error(std::string operation, std::string object, int status,
                      const std::string& body);

/// Cuts a stream into its lines. Empty lines are left out.
class LineSplitter {
 public:
  LineSplitter(std::size_t max_line_bytes, LineSink sink)
      : max_line_bytes_(max_line_bytes), sink_(std::move(sink)) {}

  /// false: the sink ended the stream, or a line is too long.
  bool add(std::string_view data);
  bool overflowed() const { return overflowed_; }

 private:
  const std::size_t max_line_bytes_;
  LineSink sink_;
  std::string partial_;
  bool overflowed_ = false;
};

}  // namespace ingero::k8s
