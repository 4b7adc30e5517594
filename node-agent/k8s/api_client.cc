// SPDX-License-Identifier: Apache-2.0
#include "k8s/api_client.h"

#include <httplib.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <csignal>
#include <utility>

#include "base/text.h"
#include "k8s/request_guard.h"
#include "k8s/tls_client.h"

namespace ingero::k8s {

namespace {

constexpr std::size_t kMaxErrorBytes = 64 * 1024;
constexpr std::size_t kMaxMessageCharacters = 512;

const char* describe_status(int status) {
  switch (status) {
    case kHttpBadRequest: return "400 Bad Request";
    case kHttpUnauthorized: return "401 Unauthorized";
    case kHttpForbidden: return "403 Forbidden";
    case kHttpNotFound: return "404 Not Found";
    case kHttpConflict: return "409 Conflict";
    case kHttpGone: return "410 Gone";
    case kHttpTooManyRequests: return "429 Too Many Requests";
    case kHttpGatewayTimeout: return "504 Gateway Timeout";
    default: return nullptr;
  }
}

const char* hint_for_status(int status) {
  switch (status) {
    case kHttpUnauthorized: return "the token or client certificate is not valid, or has expired";
    case kHttpForbidden: return "give the agent's service account a ClusterRole with this verb";
    case kHttpNotFound: return "is the resource's CRD installed?";
    case kHttpGone: return "the resource version is too old; list again";
    default: return "";
  }
}

const char* describe_transport(httplib::Error error) {
  switch (error) {
    case httplib::Error::Connection: return "no connection could be made";
    case httplib::Error::ConnectionTimeout: return "no connection within the time limit";
    case httplib::Error::Read: return "the answer was cut, or did not come in time";
    case httplib::Error::Write: return "the request could not be sent";
    case httplib::Error::SSLConnection:
      return "the TLS handshake failed; a client certificate may be missing or refused";
    case httplib::Error::SSLLoadingCerts: return "the certificate authorities could not be loaded";
    case httplib::Error::Success:
    case httplib::Error::Unknown:
    case httplib::Error::BindIPAddress:
    case httplib::Error::ExceedRedirectCount:
    case httplib::Error::Canceled:
    case httplib::Error::SSLServerVerification:
    case httplib::Error::UnsupportedMultipartBoundaryChars:
    case httplib::Error::Compression: break;
  }
  return "the exchange failed";
}

/// A dead node or a cut network is noticed in 25 s even while a watch is silent.
void keep_alive(int socket) {
  const int on = 1;
  const int idle_s = 10;
  const int interval_s = 5;
  const int probes = 3;
  const unsigned int unacknowledged_ms = 25000;
  ::setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof(interval_s));
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
  ::setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacknowledged_ms,
               sizeof(unacknowledged_ms));
}

/// One request and its answer.
struct Exchange {
  std::string operation;
  std::string path;
  std::chrono::seconds limit{};
  std::chrono::seconds silence{};
  std::function<bool(std::string_view)> on_body;  ///< of a success; false ends the request
  std::stop_token stop;
  std::string method = "GET";
  std::string content_type;  ///< empty: there is no body
  std::string body;
};

bool is_success(int status) { return status >= 200 && status < 300; }

const char* method_name(WriteMethod method) {
  switch (method) {
    case WriteMethod::post: return "POST";
    case WriteMethod::put: return "PUT";
    case WriteMethod::patch: return "PATCH";
    case WriteMethod::remove: return "DELETE";
  }
  return "";
}

const char* content_type(BodyType type) {
  switch (type) {
    case BodyType::json: return "application/json";
    case BodyType::merge_patch: return "application/merge-patch+json";
    case BodyType::apply: return "application/apply-patch+yaml";  // JSON is YAML too
  }
  return "";
}

/// `path` with the query that names the field manager.
std::string write_path(const std::string& path, BodyType type) {
  std::string out = path;
  out += path.find('?') == std::string::npos ? '?' : '&';
  out += "fieldManager=ingero";
  if (type == BodyType::apply) out += "&force=true";
  return out;
}

/// Carries out one exchange. cpp-httplib may throw: the caller catches.
class Request {
 public:
  Request(const Credentials& credentials, const ApiClientOptions& options, const Exchange& exchange)
      : credentials_(credentials), options_(options), exchange_(exchange) {}

  /// An error also when `on_body` ended the request; the caller knows why it did.
  Status run() {
    auto token = credentials_.token();
    if (!token) return fail(token.error());
    auto material = credentials_.tls();
    if (!material) return fail(material.error());
    auto client = make_http_client(credentials_.endpoint(), *material);
    if (!client) return fail(client.error());
    httplib::Headers headers{{"Accept", "application/json"},
                             // A compressed watch would arrive in blocks, not in events.
                             {"Accept-Encoding", "identity"},
                             {"User-Agent", options_.user_agent}};
    if (!token->empty()) headers.emplace("Authorization", "Bearer " + *token);
    RequestGuard guard(exchange_.limit, exchange_.stop);
    configure(**client, guard);
    if (!exchange_.content_type.empty()) headers.emplace("Content-Type", exchange_.content_type);
    const auto answer = (*client)->send(make_request(std::move(headers)));
    if (exchange_.stop.stop_requested()) return problem("stopped", "");
    // Also when the connection broke after the status: a refusal says more than its end.
    if (status_ != 0 && !is_success(status_))
      return fail(make_http_error(exchange_.operation, object(), status_, error_body_));
    if (guard.is_expired()) return problem("it took too long", "");
    if (!answer) return fail_transport(answer.error(), **client);
    return {};
  }

 private:
  std::string object() const { return to_string(credentials_.endpoint()) + exchange_.path; }

  tl::unexpected<Error> problem(std::string cause, std::string hint) const {
    return fail(Error{exchange_.operation, object(), std::move(cause), std::move(hint), 0});
  }

  httplib::Request make_request(httplib::Headers headers) {
    httplib::Request request;
    request.method = exchange_.method;
    request.path = credentials_.endpoint().path_prefix + exchange_.path;
    request.headers = std::move(headers);
    request.body = exchange_.body;
    request.response_handler = [this](const httplib::Response& response) {
      status_ = response.status;
      return true;
    };
    request.content_receiver = [this](const char* data, std::size_t size, std::uint64_t,
                                      std::uint64_t) {
      return take({data, size});
    };
    return request;
  }

  void configure(httplib::ClientImpl& client, RequestGuard& guard) const {
    client.set_connection_timeout(options_.connect_timeout);
    client.set_read_timeout(exchange_.silence);
    client.set_write_timeout(options_.connect_timeout);
    client.set_follow_location(false);  // the token is for this server alone
    client.set_url_encode(false);       // the callers encode
    client.set_decompress(false);
    client.set_tcp_nodelay(true);
    client.set_socket_options([&guard](int socket) {
      keep_alive(socket);
      guard.watch_socket(socket);
    });
  }

  bool take(std::string_view data) {
    if (is_success(status_)) return exchange_.on_body(data);
    if (error_body_.size() + data.size() > kMaxErrorBytes) return false;
    error_body_.append(data);
    return true;
  }

  Status fail_transport(httplib::Error error, const httplib::ClientImpl& client) const {
    if (error == httplib::Error::SSLServerVerification) {
      std::string why = describe_verification(client);
      if (why.empty()) why = "it names another host";
      return problem("the server's certificate is refused: " + why,
                     "is the certificate authority that of this cluster, and does the certificate "
                     "name this address?");
    }
    return problem(describe_transport(error), "is the API server running and reachable from here?");
  }

  const Credentials& credentials_;
  const ApiClientOptions& options_;
  const Exchange& exchange_;
  int status_ = 0;
  std::string error_body_;
};

Status perform(const Credentials& credentials, const ApiClientOptions& options,
               const Exchange& exchange) {
  try {
    return Request(credentials, options, exchange).run();
  } catch (const std::exception& error) {
    return fail(Error{exchange.operation, exchange.path, escape_terminal(error.what()), "", 0});
  }
}

/// The body of a success, of at most the client's limit.
Result<std::string> fetch(const Credentials& credentials, const ApiClientOptions& options,
                          Exchange exchange) {
  std::string body;
  bool too_long = false;
  exchange.on_body = [&](std::string_view data) {
    too_long = body.size() + data.size() > options.max_body_bytes;
    if (!too_long) body.append(data);
    return !too_long;
  };
  auto done = perform(credentials, options, exchange);
  if (too_long) {
    return fail(Error{exchange.operation, exchange.path,
                      fmt::format("the answer is longer than {} bytes", options.max_body_bytes), "",
                      0});
  }
  if (!done) return fail(done.error());
  return body;
}

Result<nlohmann::json> parse_answer(const Result<std::string>& body, const std::string& operation,
                                    const std::string& path) {
  if (!body) return fail(body.error());
  auto parsed = nlohmann::json::parse(*body, nullptr, false);
  if (parsed.is_discarded())
    return fail(Error{operation, path, "the answer is not valid JSON", "", 0});
  return parsed;
}

}  // namespace

Error make_http_error(std::string operation, std::string object, int status,
                      const std::string& body) {
  const char* name = describe_status(status);
  std::string cause = name != nullptr ? name : fmt::format("HTTP status {}", status);
  const auto parsed = nlohmann::json::parse(body, nullptr, false);
  if (parsed.is_object() && parsed.contains("message") && parsed["message"].is_string()) {
    cause += ": " + truncate(escape_terminal(parsed["message"].get_ref<const std::string&>()),
                             kMaxMessageCharacters);
  }
  return Error{std::move(operation), std::move(object), std::move(cause), hint_for_status(status),
               status};
}

bool LineSplitter::add(std::string_view data) {
  while (!data.empty()) {
    const auto end = data.find('\n');
    const auto piece = data.substr(0, end);
    if (partial_.size() + piece.size() > max_line_bytes_) {
      overflowed_ = true;
      return false;
    }
    partial_.append(piece);
    if (end == std::string_view::npos) return true;
    data.remove_prefix(end + 1);
    const std::string line = std::exchange(partial_, {});
    if (!line.empty() && !sink_(line)) return false;
  }
  return true;
}

ApiClient::ApiClient(Credentials credentials, ApiClientOptions options)
    : credentials_(std::move(credentials)), options_(std::move(options)) {
  struct sigaction current {};
  if (::sigaction(SIGPIPE, nullptr, &current) == 0 && current.sa_handler == SIG_DFL)
    static_cast<void>(std::signal(SIGPIPE, SIG_IGN));
}

Result<std::string> ApiClient::get(const std::string& path, std::stop_token stop) {
  return fetch(credentials_, options_,
               Exchange{"GET", path, options_.request_limit, options_.read_timeout, nullptr,
                        std::move(stop)});
}

Result<nlohmann::json> ApiClient::send(WriteMethod method, const std::string& path,
                                       const nlohmann::json& body, BodyType type,
                                       std::stop_token stop) {
  const std::string name = method_name(method);
  Exchange exchange{name,
                    write_path(path, type),
                    options_.request_limit,
                    options_.read_timeout,
                    nullptr,
                    std::move(stop),
                    name,
                    content_type(type)};
  // Names of others may not be valid UTF-8, which dump() would throw at.
  exchange.body = body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return parse_answer(fetch(credentials_, options_, std::move(exchange)), name, path);
}

Status ApiClient::watch(const std::string& path, std::chrono::seconds limit,
                        const LineSink& on_line, std::stop_token stop) {
  bool ended_by_sink = false;
  LineSplitter lines(options_.max_line_bytes, [&](std::string_view line) {
    ended_by_sink = !on_line(line);
    return !ended_by_sink;
  });
  Exchange exchange{"watch", path, limit, options_.watch_silence, nullptr, std::move(stop)};
  exchange.on_body = [&](std::string_view data) { return lines.add(data); };
  auto done = perform(credentials_, options_, exchange);
  if (ended_by_sink) return {};
  if (lines.overflowed()) {
    return fail(Error{"watch", path,
                      fmt::format("a line is longer than {} bytes", options_.max_line_bytes), "",
                      0});
  }
  return done;
}

Result<nlohmann::json> ApiClient::get_json(const std::string& path, std::stop_token stop) {
  return parse_answer(get(path, std::move(stop)), "GET", path);
}

}  // namespace ingero::k8s
