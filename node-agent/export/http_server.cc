// SPDX-License-Identifier: Apache-2.0
#include "export/http_server.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <exception>
#include <map>
#include <string_view>
#include <thread>
#include <utility>

#include "export/http_clients.h"
#include "export/http_page.h"
#include "export/listener.h"
#include "export/prometheus_collectable.h"

namespace ingero::exporting {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;

constexpr const char* kText = "text/plain; charset=utf-8";
constexpr auto kAcceptRetry = 100ms;
constexpr std::size_t kPages = 3;  // those that are made on threads of their own
/// What the kernel keeps for a connection counts as the agent's memory.
constexpr int kReceiveBuffer = 16 << 10;
constexpr int kSendBuffer = 256 << 10;

constexpr std::string_view kIndex = R"(<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Ingero node agent</title></head>
<body><h1>Ingero node agent</h1><ul>
<li><a href="/metrics">/metrics</a>: metrics in the Prometheus text format</li>
<li><a href="/healthz">/healthz</a>: the agent runs</li>
<li><a href="/readyz">/readyz</a>: the agent observes, or what it waits for</li>
<li><a href="/debug/state">/debug/state</a>: processes, files and probes as JSON</li>
</ul></body></html>
)";

HttpBody text_body(unsigned status, const std::string& text) {
  return {status, kText, text + "\n"};
}

/// The handler's body, or what went wrong in it.
template <typename Make>
HttpBody body_of(const Make& make) {
  try {
    return make();
  } catch (const std::exception& problem) {
    return text_body(500, problem.what());
  } catch (...) {
    return text_body(500, "unknown exception");
  }
}

HttpPage::Make page_of(std::function<Result<std::string>()> make, const char* content_type) {
  return [make = std::move(make), content_type] {
    return body_of([&]() -> HttpBody {
      if (!make) return text_body(404, "not served by this agent");
      auto text = make();
      if (!text) return text_body(500, text.error().message());
      return {200, content_type, std::move(*text)};
    });
  };
}

HttpPage::Make page_of(std::function<Readiness()> ask, std::string yes, std::string no) {
  return [ask = std::move(ask), yes = std::move(yes), no = std::move(no)] {
    return body_of([&] {
      const Readiness readiness = ask ? ask() : Readiness{true, ""};
      const std::string& plain = readiness.ready ? yes : no;
      return text_body(readiness.ready ? 200 : 503,
                       readiness.reason.empty() ? plain : readiness.reason);
    });
  };
}

}  // namespace

/// One thread has the connections, the pages are made on others.
class HttpServer::Impl : private HttpConnection::Owner {
 public:
  Impl(Listener listener, HttpOptions options, HttpHandlers handlers)
      : options_(std::move(options)),
        port_(listener.port),
        acceptor_(io_),
        retry_(io_),
        clients_(options_.max_connections, options_.max_body_bytes),
        health_(page_of(std::move(handlers.liveness), "ok", "not alive")),
        pool_(kPages) {
    pages_.try_emplace("/metrics", io_, pool_,
                       page_of(std::move(handlers.metrics), kMetricsContentType));
    pages_.try_emplace("/debug/state", io_, pool_,
                       page_of(std::move(handlers.debug_state), "application/json"));
    pages_.try_emplace("/readyz", io_, pool_,
                       page_of(std::move(handlers.readiness), "ready", "not ready"));
    adopt(std::move(listener.fd));
    accept();
    thread_ = std::thread([this] { run(); });
  }
  ~Impl() override { stop(); }

  std::uint16_t port() const { return port_; }

  void stop() {
    if (!thread_.joinable()) return;
    asio::post(io_, [this] {
      stopping_ = true;
      boost::system::error_code ignored;
      acceptor_.close(ignored);
      clients_.close_all();
      io_.stop();
    });
    thread_.join();
    pool_.join();
  }

 private:
  void adopt(UniqueFd fd) {
    int family = AF_INET;
    socklen_t size = sizeof(family);
    ::getsockopt(fd.get(), SOL_SOCKET, SO_DOMAIN, &family, &size);
    acceptor_.assign(family == AF_INET6 ? asio::ip::tcp::v6() : asio::ip::tcp::v4(), fd.get());
    static_cast<void>(fd.release());
    // Connections inherit them.
    boost::system::error_code ignored;
    acceptor_.set_option(asio::socket_base::receive_buffer_size(kReceiveBuffer), ignored);
    acceptor_.set_option(asio::socket_base::send_buffer_size(kSendBuffer), ignored);
  }

  void run() {
    for (;;) {
      try {
        io_.run();
        return;
      } catch (const std::exception&) {
        // No memory at the moment, for one connection.
      }
    }
  }

  void accept() {
    acceptor_.async_accept(
        [this](const boost::system::error_code& error, asio::ip::tcp::socket socket) {
          if (stopping_) return;
          if (error) return accept_later();
          admit(std::move(socket));
          accept();
        });
  }

  /// Such as a full file table, or a connection that was reset in the queue.
  void accept_later() {
    retry_.expires_after(kAcceptRetry);
    retry_.async_wait([this](const boost::system::error_code& error) {
      if (!error) accept();
    });
  }

  void admit(asio::ip::tcp::socket socket) {
    auto connection = std::make_shared<HttpConnection>(std::move(socket), options_.limits, owner());
    clients_.add(connection);
    connection->start();
  }

  HttpConnection::Owner& owner() { return *this; }

  void requested(const std::shared_ptr<HttpConnection>& connection,
                 HttpConnection::Request request) override {
    clients_.bound_bodies();
    const auto page = request.read ? pages_.find(request.path) : pages_.end();
    if (page != pages_.end()) return page->second.ask(connection, request.gzip);
    connection->answer(std::make_shared<const HttpBody>(small_page(request)));
  }

  HttpBody small_page(const HttpConnection::Request& request) const {
    if (request.read && request.path == "/healthz") return health_();
    if (request.read && request.path == "/")
      return {200, "text/html; charset=utf-8", std::string(kIndex)};
    return text_body(404, "no such page: " + request.path);
  }

  void closed(const std::shared_ptr<HttpConnection>& connection) override {
    for (auto& [path, page] : pages_) page.forget(connection);
    clients_.remove(connection);
  }

  const HttpOptions options_;
  const std::uint16_t port_;
  asio::io_context io_{1};
  asio::ip::tcp::acceptor acceptor_;
  asio::steady_timer retry_;
  HttpClients clients_;
  const HttpPage::Make health_;
  std::map<std::string, HttpPage> pages_;
  asio::thread_pool pool_;
  bool stopping_ = false;
  std::thread thread_;
};

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;

Result<std::unique_ptr<HttpServer>> HttpServer::create(HttpOptions options, HttpHandlers handlers) {
  auto listener = listen_tcp(options.host, options.port);
  if (!listener) return fail(listener.error());
  try {
    auto impl =
        std::make_unique<Impl>(std::move(*listener), std::move(options), std::move(handlers));
    return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
  } catch (const std::exception& problem) {
    return fail(Error{"start HTTP server", "", problem.what(), "", 0});
  }
}

std::uint16_t HttpServer::port() const { return impl_->port(); }

void HttpServer::stop() { impl_->stop(); }

}  // namespace ingero::exporting
