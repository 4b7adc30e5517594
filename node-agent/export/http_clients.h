// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "export/http_connection.h"

namespace ingero::exporting {

/// The connections there are, and which of them is given up for a new one. Belongs to the
/// io_context's thread.
class HttpClients {
 public:
  HttpClients(std::size_t max_connections, std::size_t max_body_bytes)
      : max_connections_(max_connections), max_body_bytes_(max_body_bytes) {}

  /// With all places taken, closes one of the address that holds most of them: an address that has
  /// one, as a kubelet or a Prometheus, keeps it whatever another one does.
  void add(const std::shared_ptr<HttpConnection>& connection);
  void remove(const std::shared_ptr<HttpConnection>& connection);
  /// Closes those that still take the oldest pages while all pages together are too large.
  void bound_bodies();
  void close_all();

 private:
  std::shared_ptr<HttpConnection> dispensable() const;

  const std::size_t max_connections_;
  const std::size_t max_body_bytes_;
  std::vector<std::shared_ptr<HttpConnection>> connections_;  ///< oldest first
};

}  // namespace ingero::exporting
