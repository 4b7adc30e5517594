// SPDX-License-Identifier: Apache-2.0
#include "export/http_connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/write.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/rfc7230.hpp>
#include <boost/beast/http/status.hpp>
#include <iterator>
#include <limits>
#include <utility>

namespace ingero::exporting {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using namespace std::chrono_literals;

/// A client whose data is still on its way would lose the answer to the reset that closing sends.
constexpr auto kLinger = 1s;
constexpr std::size_t kDrained = 64 << 10;

bool accepts_gzip(boost::beast::string_view accepted) {
  for (const auto& [name, parameters] : http::ext_list(accepted)) {
    if (!boost::beast::iequals(name, "gzip")) continue;
    return std::none_of(parameters.begin(), parameters.end(), [](const auto& parameter) {
      return parameter.first == "q" &&
             parameter.second.find_first_not_of("0.") == boost::beast::string_view::npos;
    });
  }
  return false;
}

/// Something came that is no request; else nobody is there any more.
bool is_bad_request(const boost::system::error_code& error) {
  return error.category() == http::make_error_code(http::error::bad_method).category() &&
         error != http::error::end_of_stream && error != http::error::partial_message;
}

unsigned status_of(const boost::system::error_code& error) {
  const bool too_long = error == http::error::header_limit || error == http::error::buffer_overflow;
  return too_long ? 431 : 400;
}

}  // namespace

HttpConnection::HttpConnection(asio::ip::tcp::socket socket, const HttpLimits& limits, Owner& owner)
    : socket_(std::move(socket)),
      deadline_(socket_.get_executor()),
      limits_(limits),
      owner_(owner),
      buffer_(limits.max_header_bytes) {
  Code error;
  const auto end = socket_.remote_endpoint(error);
  if (!error) peer_ = end.address();
  socket_.set_option(asio::ip::tcp::no_delay(true), error);
}

void HttpConnection::start() {
  phase_ = Phase::reading;  // a new client has something to say
  read_header();
}

void HttpConnection::close() {
  if (std::exchange(closed_, true)) return;
  Code ignored;
  deadline_.cancel();
  socket_.close(ignored);
  body_.reset();
  owner_.closed(shared_from_this());
}

void HttpConnection::limit(std::chrono::milliseconds time) {
  deadline_.expires_after(time);
  deadline_.async_wait([self = shared_from_this()](const Code& error) {
    // One that had fired before it was put off comes nevertheless.
    if (!error && self->deadline_.expiry() <= asio::steady_timer::clock_type::now()) self->close();
  });
}

void HttpConnection::await_request() {
  phase_ = Phase::idle;
  if (buffer_.size() > 0) return read_header();
  limit(limits_.idle_timeout);
  socket_.async_wait(asio::ip::tcp::socket::wait_read,
                     [self = shared_from_this()](const Code& error) {
                       if (self->closed_) return;
                       if (error) return self->close();
                       self->read_header();
                     });
}

void HttpConnection::read_header() {
  phase_ = Phase::reading;
  limit(limits_.header_timeout);
  parser_.emplace();
  parser_->header_limit(static_cast<std::uint32_t>(limits_.max_header_bytes));
  parser_->body_limit(std::numeric_limits<std::uint64_t>::max());  // none is read
  http::async_read_header(socket_, buffer_, *parser_,
                          [self = shared_from_this()](const Code& error, std::size_t) {
                            if (!self->closed_) self->on_header(error);
                          });
}

void HttpConnection::on_header(const Code& error) {
  keep_alive_ = false;
  head_ = false;
  if (error && !is_bad_request(error)) return close();
  phase_ = Phase::answering;
  limit(limits_.request_timeout);
  if (error) return refuse(status_of(error), "not a request: " + error.message());
  const auto& message = parser_->get();
  if (std::distance(message.begin(), message.end()) >
      static_cast<std::ptrdiff_t>(limits_.max_headers))
    return refuse(431, "too many headers");
  const bool read = message.method() == http::verb::get || message.method() == http::verb::head;
  const bool body = parser_->chunked() || parser_->content_length().value_or(0) > 0;
  if (read && body) return refuse(413, "a request has no body here");
  head_ = message.method() == http::verb::head;
  keep_alive_ = message.keep_alive() && !body;
  const auto target = message.target();
  Request request{std::string(target.substr(0, target.find('?'))), read,
                  accepts_gzip(message[http::field::accept_encoding])};
  parser_.reset();
  owner_.requested(shared_from_this(), std::move(request));
}

void HttpConnection::refuse(unsigned status, const std::string& why) {
  keep_alive_ = false;
  parser_.reset();
  answer(
      std::make_shared<const HttpBody>(HttpBody{status, "text/plain; charset=utf-8", why + "\n"}));
}

void HttpConnection::answer(HttpBodyPtr body) {
  if (closed_) return;
  body_ = std::move(body);
  send();
}

void HttpConnection::send() {
  header_ = fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{}Connection: {}\r\n\r\n",
      body_->status, std::string(http::obsolete_reason(http::int_to_status(body_->status))),
      body_->content_type, body_->text.size(),
      body_->gzip ? "Content-Encoding: gzip\r\nVary: Accept-Encoding\r\n" : "",
      keep_alive_ ? "keep-alive" : "close");
  const std::array<asio::const_buffer, 2> parts = {
      asio::buffer(header_), asio::buffer(body_->text.data(), head_ ? 0 : body_->text.size())};
  asio::async_write(socket_, parts,
                    [self = shared_from_this(), body = body_](const Code& error, std::size_t) {
                      if (!self->closed_) self->on_sent(error);
                    });
}

void HttpConnection::on_sent(const Code& error) {
  body_.reset();
  if (error) return close();
  if (keep_alive_) return await_request();
  linger();
}

void HttpConnection::linger() {
  Code error;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, error);
  if (error) return close();
  phase_ = Phase::idle;
  drain_left_ = kDrained;
  limit(kLinger);
  drain();
}

void HttpConnection::drain() {
  socket_.async_read_some(asio::buffer(drained_),
                          [self = shared_from_this()](const Code& error, std::size_t size) {
                            if (self->closed_) return;
                            if (error || size >= self->drain_left_) return self->close();
                            self->drain_left_ -= size;
                            self->drain();
                          });
}

}  // namespace ingero::exporting
