// SPDX-License-Identifier: Apache-2.0
#include "k8s/credentials.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "base/text.h"
#include "base/text_file.h"

namespace ingero::k8s {

namespace {

constexpr std::size_t kMaxSecretBytes = 1024 * 1024;
const char kUseKubeconfig[] = "outside a cluster, name a kubeconfig";

Result<std::string> read_secret(const SecretSource& source, const std::string& operation) {
  if (source.file.empty()) return source.text;
  auto text = read_text_file(source.file, kMaxSecretBytes, operation);
  if (!text) {
    Error error = text.error();
    error.hint = "is the file there and readable for the agent?";
    return fail(std::move(error));
  }
  if (text->empty()) return fail(Error{operation, source.file, "the file is empty", "", 0});
  return text;
}

std::string trim(std::string text) {
  const char* blank = " \t\r\n";
  const auto first = text.find_first_not_of(blank);
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(blank) - first + 1);
}

/// A token goes into a header line: a byte that ends the line would start a header of its own.
bool is_header_safe(std::string_view token) {
  return std::all_of(token.begin(), token.end(), [](char c) { return c > ' ' && c < 0x7f; });
}

std::optional<std::uint16_t> parse_port(std::string_view text) {
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size() || port == 0) return std::nullopt;
  return port;
}

bool is_host(std::string_view host) {
  return !host.empty() && std::all_of(host.begin(), host.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("-._:%").find(c) != std::string_view::npos;
  });
}

bool is_path(std::string_view path) {
  return std::all_of(path.begin(), path.end(),
                     [](char c) { return c > ' ' && c < 0x7f && c != '?' && c != '#'; });
}

}  // namespace

std::optional<std::string> read_process_environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  return std::string(value);
}

std::string to_string(const ApiEndpoint& endpoint) {
  const bool v6 = endpoint.host.find(':') != std::string::npos;
  return fmt::format("{}://{}{}{}:{}{}", endpoint.tls ? "https" : "http", v6 ? "[" : "",
                     endpoint.host, v6 ? "]" : "", endpoint.port, endpoint.path_prefix);
}

Result<ApiEndpoint> parse_server_url(std::string_view url) {
  const auto problem = [&](std::string cause) {
    return fail(Error{"read API server address", escape_terminal(url), std::move(cause),
                      "write it like https://10.96.0.1:6443", 0});
  };
  ApiEndpoint endpoint;
  std::string_view rest = url;
  if (rest.starts_with("https://")) {
    rest.remove_prefix(8);
  } else if (rest.starts_with("http://")) {
    rest.remove_prefix(7);
    endpoint.tls = false;
    endpoint.port = 80;
  } else {
    return problem("it does not begin with https://");
  }
  const auto slash = std::min(rest.find('/'), rest.size());
  endpoint.path_prefix = rest.substr(slash);
  while (endpoint.path_prefix.ends_with('/')) endpoint.path_prefix.pop_back();
  if (!is_path(endpoint.path_prefix)) return problem("its path holds characters that no path has");
  rest = rest.substr(0, slash);

  std::string_view port;
  if (rest.starts_with('[')) {
    const auto bracket = rest.find(']');
    if (bracket == std::string_view::npos) return problem("a bracket is not closed");
    endpoint.host = rest.substr(1, bracket - 1);
    port = rest.substr(bracket + 1);
    if (!port.empty() && !port.starts_with(':')) return problem("text follows the address");
  } else {
    const auto colon = std::min(rest.find(':'), rest.size());
    endpoint.host = rest.substr(0, colon);
    port = rest.substr(colon);
  }
  if (!is_host(endpoint.host)) return problem("it has no usable host");
  if (!port.empty()) {
    const auto number = parse_port(port.substr(1));
    if (!number) return problem("its port is not a number from 1 to 65535");
    endpoint.port = *number;
  }
  return endpoint;
}

Result<Credentials> Credentials::in_cluster(const InClusterRoots& roots) {
  const std::string operation = "find the cluster";
  const auto host = roots.environment("KUBERNETES_SERVICE_HOST");
  const auto port = roots.environment("KUBERNETES_SERVICE_PORT");
  if (!host || host->empty() || !port || port->empty()) {
    return fail(Error{operation, "",
                      "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not both set, so "
                      "this process runs in no pod",
                      kUseKubeconfig, 0});
  }
  const auto number = parse_port(*port);
  if (!is_host(*host) || !number) {
    return fail(Error{operation, escape_terminal(*host + ":" + *port),
                      "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT hold no address",
                      kUseKubeconfig, 0});
  }
  Credentials credentials;
  credentials.endpoint_ = ApiEndpoint{*host, *number, true, ""};
  credentials.token_.file = roots.service_account + "/token";
  credentials.authorities_.file = roots.service_account + "/ca.crt";
  if (auto name = read_text_file(roots.service_account + "/namespace", 4096, operation);
      name && !trim(*name).empty()) {
    credentials.namespace_ = trim(*name);
  }
  if (auto complete = credentials.check(); !complete) {
    Error error = complete.error();
    error.hint = "does the pod have a service account, and automountServiceAccountToken not false?";
    return fail(std::move(error));
  }
  return credentials;
}

Status Credentials::check() const {
  if (auto secret = token(); !secret) return fail(secret.error());
  if (auto material = tls(); !material) return fail(material.error());
  return {};
}

Result<std::string> Credentials::token() const {
  if (token_.empty()) return std::string();
  const std::string operation = "read API token";
  auto text = read_secret(token_, operation);
  if (!text) return text;
  std::string token = trim(std::move(*text));
  if (token.empty() || !is_header_safe(token)) {
    return fail(Error{operation, token_.file, "it is empty or holds characters that no token has",
                      "a token is one line of printable ASCII", 0});
  }
  if (!endpoint_.tls) {
    return fail(Error{operation, to_string(endpoint_), "a token is not sent without TLS",
                      "use an https:// address, or no token (kubectl proxy)", 0});
  }
  return token;
}

Result<TlsMaterial> Credentials::tls() const {
  TlsMaterial material;
  material.skip_verification = skip_verification_;
  auto authorities = read_secret(authorities_, "read certificate authority");
  if (!authorities) return fail(authorities.error());
  auto certificate = read_secret(client_certificate_, "read client certificate");
  if (!certificate) return fail(certificate.error());
  auto key = read_secret(client_key_, "read client key");
  if (!key) return fail(key.error());
  material.authorities = std::move(*authorities);
  material.client_certificate = std::move(*certificate);
  material.client_key = std::move(*key);
  return material;
}

}  // namespace ingero::k8s
