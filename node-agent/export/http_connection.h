// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>

namespace ingero::exporting {

/// A page as it is sent, shared by all who asked for it.
struct HttpBody {
  unsigned status = 200;
  const char* content_type = "";
  std::string text;  ///< compressed, if gzip
  bool gzip = false;
  std::chrono::steady_clock::time_point made = std::chrono::steady_clock::now();
};
using HttpBodyPtr = std::shared_ptr<const HttpBody>;

struct HttpLimits {
  std::size_t max_header_bytes = 8192;  ///< request line and headers
  std::size_t max_headers = 100;
  std::chrono::milliseconds header_timeout{5000};    ///< from a request's first byte to its last
  std::chrono::milliseconds request_timeout{30000};  ///< then, until the answer was taken
  std::chrono::milliseconds idle_timeout{120000};    ///< between two requests
};

/// One client. It can send nothing but the headers of one request at a time, and the time for that
/// and for taking the answer is limited as a whole: who sends or reads a byte now and then gains
/// nothing. Belongs to the io_context's thread.
class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  /// In the order in which connections are given up for a new one.
  enum class Phase { idle, reading, answering };

  struct Request {
    std::string path;   ///< without the query
    bool read = false;  ///< GET or HEAD
    bool gzip = false;  ///< accepted
  };

  /// Who has the pages. Both are called from the connection's own handlers.
  class Owner {
   public:
    virtual ~Owner() = default;
    /// answer() must be called, now or later.
    virtual void requested(const std::shared_ptr<HttpConnection>& connection, Request request) = 0;
    virtual void closed(const std::shared_ptr<HttpConnection>& connection) = 0;
  };

  HttpConnection(boost::asio::ip::tcp::socket socket, const HttpLimits& limits, Owner& owner);
  void start();
  void answer(HttpBodyPtr body);
  void close();

  Phase phase() const { return phase_; }
  /// Of the client; unspecified, if it has gone already.
  const boost::asio::ip::address& peer() const { return peer_; }
  const HttpBodyPtr& body() const { return body_; }

 private:
  using Parser = boost::beast::http::request_parser<boost::beast::http::empty_body>;
  using Code = boost::system::error_code;

  void await_request();
  void read_header();
  void on_header(const Code& error);
  void refuse(unsigned status, const std::string& why);
  void send();
  void on_sent(const Code& error);
  void linger();
  void drain();
  void limit(std::chrono::milliseconds time);

  boost::asio::ip::tcp::socket socket_;
  boost::asio::steady_timer deadline_;
  const HttpLimits limits_;
  Owner& owner_;
  boost::asio::ip::address peer_;
  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  Phase phase_ = Phase::idle;
  bool closed_ = false;
  bool head_ = false;
  bool keep_alive_ = false;
  std::string header_;
  HttpBodyPtr body_;
  std::array<char, 1024> drained_{};
  std::size_t drain_left_ = 0;
};

}  // namespace ingero::exporting
