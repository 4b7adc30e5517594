// SPDX-License-Identifier: Apache-2.0
#include "export/http_server.h"

#include <fcntl.h>
#include <httplib.h>
#include <sys/socket.h>

#include <atomic>
#include <exception>
#include <string_view>
#include <thread>
#include <utility>

#include "base/unique_fd.h"
#include "export/listener.h"
#include "export/prometheus_collectable.h"

namespace ingero::exporting {
namespace {

constexpr const char* kText = "text/plain; charset=utf-8";
constexpr std::size_t kMaxRequestBody = 64 * 1024;
constexpr std::size_t kRequestsPerConnection = 100;
constexpr auto kAcceptRetry = std::chrono::milliseconds(100);

constexpr std::string_view kIndex = R"(<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Ingero node agent</title></head>
<body><h1>Ingero node agent</h1><ul>
<li><a href="/metrics">/metrics</a>: metrics in the Prometheus text format</li>
<li><a href="/healthz">/healthz</a>: the agent runs</li>
<li><a href="/readyz">/readyz</a>: the agent observes, or what it waits for</li>
<li><a href="/debug/state">/debug/state</a>: processes, files and probes as JSON</li>
</ul></body></html>
)";

void set_text(httplib::Response& response, int status, const std::string& text) {
  response.status = status;
  response.set_content(text + "\n", kText);
}

std::string problem_of(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const std::exception& problem) {
    return problem.what();
  } catch (...) {
    return "unknown exception";
  }
}

void serve_body(const std::function<Result<std::string>()>& make, const char* content_type,
                httplib::Response& response) {
  if (!make) return set_text(response, 404, "not served by this agent");
  const auto body = make();
  if (!body) return set_text(response, 500, body.error().message());
  response.set_content(*body, content_type);
}

void serve_readiness(const std::function<Readiness()>& ask, httplib::Response& response) {
  const Readiness readiness = ask ? ask() : Readiness{true, ""};
  const std::string text =
      readiness.reason.empty() ? (readiness.ready ? "ready" : "not ready") : readiness.reason;
  set_text(response, readiness.ready ? 200 : 503, text);
}

/// cpp-httplib's brotli runs at its highest, slowest level: seconds of CPU for one page. The
/// request is a local, non-const object of the server's; handlers only see it as const.
void refuse_brotli(const httplib::Request& request) {
  auto& headers = const_cast<httplib::Request&>(request).headers;
  const bool gzip = request.get_header_value("Accept-Encoding").find("gzip") != std::string::npos;
  headers.erase("Accept-Encoding");
  if (gzip) headers.emplace("Accept-Encoding", "gzip");
}

/// A server that takes a bound socket: cpp-httplib's own bind tells no cause and shares the port.
class AdoptingServer : public httplib::Server {
 public:
  void adopt(int fd) { svr_sock_ = fd; }
};

void configure(AdoptingServer& server, const HttpOptions& options) {
  const std::size_t threads = options.threads;
  server.new_task_queue = [threads] { return new httplib::ThreadPool(threads); };
  server.set_read_timeout(options.read_timeout);
  server.set_write_timeout(options.write_timeout);
  server.set_keep_alive_timeout(options.keep_alive_timeout.count());
  server.set_keep_alive_max_count(kRequestsPerConnection);
  server.set_payload_max_length(kMaxRequestBody);
  server.set_tcp_nodelay(true);
  server.set_pre_routing_handler([](const httplib::Request& request, httplib::Response&) {
    refuse_brotli(request);
    return httplib::Server::HandlerResponse::Unhandled;
  });
  server.set_exception_handler(
      [](const httplib::Request&, httplib::Response& response, std::exception_ptr thrown) {
        set_text(response, 500, problem_of(thrown));
      });
  server.set_error_handler([](const httplib::Request& request, httplib::Response& response) {
    if (!response.body.empty()) return;
    const int status = response.status;
    set_text(response, status,
             status == 404 ? "no such page: " + request.path : "status " + std::to_string(status));
  });
}

void route(AdoptingServer& server, const HttpHandlers& handlers) {
  using httplib::Request;
  using httplib::Response;
  server.Get("/metrics", [make = handlers.metrics](const Request&, Response& response) {
    serve_body(make, kMetricsContentType, response);
  });
  server.Get("/healthz", [](const Request&, Response& response) { set_text(response, 200, "ok"); });
  server.Get("/readyz", [ask = handlers.readiness](const Request&, Response& response) {
    serve_readiness(ask, response);
  });
  server.Get("/debug/state", [make = handlers.debug_state](const Request&, Response& response) {
    serve_body(make, "application/json", response);
  });
  server.Get("/", [](const Request&, Response& response) {
    response.set_content(std::string(kIndex), "text/html; charset=utf-8");
  });
}

}  // namespace

class HttpServer::Impl {
 public:
  Impl(Listener listener, const HttpOptions& options, const HttpHandlers& handlers)
      : listener_(std::move(listener)) {
    configure(server_, options);
    route(server_, handlers);
    thread_ = std::thread([this] { serve(); });
  }
  ~Impl() { stop(); }

  std::uint16_t port() const { return listener_.port; }

  void stop() {
    stopping_ = true;
    if (!thread_.joinable()) return;
    // The shutdown ends the accept; stop() besides makes idle connections give up early. Either
    // alone could come between two rounds of serve().
    if (server_.is_running()) server_.stop();
    ::shutdown(listener_.fd.get(), SHUT_RDWR);
    thread_.join();
    listener_.fd.reset();
  }

 private:
  /// cpp-httplib gives up at the first failed accept, such as a connection that was reset in the
  /// queue or a full file table; the listening socket survives in ours and is handed over again.
  void serve() {
    while (!stopping_) {
      UniqueFd fd(fcntl(listener_.fd.get(), F_DUPFD_CLOEXEC, 0));
      if (fd) serve_from(std::move(fd));
      if (!stopping_) std::this_thread::sleep_for(kAcceptRetry);
    }
  }

  void serve_from(UniqueFd fd) {
    try {
      server_.adopt(fd.get());
      server_.listen_after_bind();
      static_cast<void>(fd.release());  // closed by the server
    } catch (const std::exception&) {
      // No thread or memory at the moment: the next round tries again.
    }
  }

  Listener listener_;
  AdoptingServer server_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;

Result<std::unique_ptr<HttpServer>> HttpServer::create(HttpOptions options, HttpHandlers handlers) {
  auto listener = listen_tcp(options.host, options.port);
  if (!listener) return fail(listener.error());
  try {
    auto impl = std::make_unique<Impl>(std::move(*listener), options, handlers);
    return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
  } catch (const std::exception& problem) {
    return fail(Error{"start HTTP server", "", problem.what(), "", 0});
  }
}

std::uint16_t HttpServer::port() const { return impl_->port(); }

void HttpServer::stop() { impl_->stop(); }

}  // namespace ingero::exporting
