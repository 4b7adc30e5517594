// SPDX-License-Identifier: Apache-2.0
#include "export/http_clients.h"

#include <algorithm>
#include <map>
#include <utility>

namespace ingero::exporting {

void HttpClients::add(const std::shared_ptr<HttpConnection>& connection) {
  while (connections_.size() >= max_connections_) dispensable()->close();  // calls remove()
  connections_.push_back(connection);
}

void HttpClients::remove(const std::shared_ptr<HttpConnection>& connection) {
  std::erase(connections_, connection);
}

/// The oldest of those that wait for nothing, else of those that have not said what they want.
std::shared_ptr<HttpConnection> HttpClients::dispensable() const {
  std::map<boost::asio::ip::address, std::size_t> held;
  for (const auto& connection : connections_) ++held[connection->peer()];
  const auto rank = [&](const std::shared_ptr<HttpConnection>& connection) {
    return std::pair(-static_cast<std::ptrdiff_t>(held[connection->peer()]), connection->phase());
  };
  return *std::min_element(connections_.begin(), connections_.end(),
                           [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
}

void HttpClients::bound_bodies() {
  std::map<std::pair<std::chrono::steady_clock::time_point, HttpBodyPtr>, std::size_t> bodies;
  std::size_t bytes = 0;
  for (const auto& connection : connections_) {
    const HttpBodyPtr& body = connection->body();
    if (body && bodies.emplace(std::pair(body->made, body), body->text.size()).second)
      bytes += body->text.size();
  }
  while (bytes > max_body_bytes_ && bodies.size() > 1) {
    const HttpBodyPtr oldest = bodies.begin()->first.second;
    bytes -= bodies.begin()->second;
    bodies.erase(bodies.begin());
    for (const auto& connection : std::vector(connections_))
      if (connection->body() == oldest) connection->close();
  }
}

void HttpClients::close_all() {
  for (const auto& connection : std::vector(connections_)) connection->close();
}

}  // namespace ingero::exporting
