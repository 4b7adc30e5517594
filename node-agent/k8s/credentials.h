// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace ingero::k8s {

/// Where the API server answers.
struct ApiEndpoint {
  std::string host;  ///< address or name, IPv6 without brackets
  std::uint16_t port = 443;
  bool tls = true;
  std::string path_prefix;  ///< in front of every path, without a trailing slash; mostly empty
  bool operator==(const ApiEndpoint&) const = default;
};

/// "https://10.96.0.1:443/prefix", for messages.
std::string to_string(const ApiEndpoint& endpoint);

/// Reads the `server` of a kubeconfig, such as "https://10.96.0.1:6443".
Result<ApiEndpoint> parse_server_url(std::string_view url);

/// What a TLS connection needs, as PEM text.
struct TlsMaterial {
  std::string authorities;  ///< empty: those of the system
  std::string client_certificate;
  std::string client_key;
  bool skip_verification = false;
};

/// Where a secret comes from: a file that may be replaced at any time, or text that stays.
struct SecretSource {
  std::string file;  ///< empty: `text` holds
  std::string text;
  bool empty() const { return file.empty() && text.empty(); }
};

/// Reads an environment variable; nullopt: not set.
using EnvironmentReader = std::function<std::optional<std::string>(const std::string& name)>;
std::optional<std::string> read_process_environment(const std::string& name);

/// The places of the credentials that a pod gets; tests put their own here.
struct InClusterRoots {
  std::string service_account = "/var/run/secrets/kubernetes.io/serviceaccount";
  EnvironmentReader environment = read_process_environment;
};

/// How to reach the API server and as whom. Immutable. Files are read anew at every question, so a
/// rotated token, authority or client certificate holds from the next request on.
class Credentials {
 public:
  /// The service account of the pod that the agent runs in.
  static Result<Credentials> in_cluster(const InClusterRoots& roots = {});
  /// A context of a kubeconfig; empty: its current-context. Relative paths in the file are relative
  /// to its folder, as for kubectl.
  static Result<Credentials> from_kubeconfig(const std::string& path,
                                             const std::string& context = "");

  const ApiEndpoint& endpoint() const { return endpoint_; }
  /// The namespace of the service account or context; "default" where none is named.
  const std::string& default_namespace() const { return namespace_; }

  /// The bearer token; empty: none is used.
  Result<std::string> token() const;
  Result<TlsMaterial> tls() const;

 private:
  friend class KubeconfigReader;
  Credentials() = default;
  /// Reads everything once, so that what is missing is told at the start.
  Status check() const;

  ApiEndpoint endpoint_;
  std::string namespace_ = "default";
  SecretSource token_;
  SecretSource authorities_;
  SecretSource client_certificate_;
  SecretSource client_key_;
  bool skip_verification_ = false;
};

}  // namespace ingero::k8s
