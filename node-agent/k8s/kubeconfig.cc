// SPDX-License-Identifier: Apache-2.0
#include <openssl/evp.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>

#include "base/text.h"
#include "base/text_file.h"
#include "k8s/credentials.h"

namespace ingero::k8s {

namespace {

constexpr std::size_t kMaxKubeconfigBytes = 4 * 1024 * 1024;
const char kOperation[] = "read kubeconfig";

/// nullopt: not base64. Blanks and line ends are skipped, as in kubectl.
std::optional<std::string> decode_base64(std::string text) {
  text.erase(std::remove_if(text.begin(), text.end(),
                            [](char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }),
             text.end());
  if (text.empty() || text.size() % 4 != 0) return std::nullopt;
  std::string out(text.size() / 4 * 3, '\0');
  const int size = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                                   reinterpret_cast<const unsigned char*>(text.data()),
                                   static_cast<int>(text.size()));
  if (size < 0) return std::nullopt;
  // EVP_DecodeBlock counts the padding as zero bytes.
  const auto padding = static_cast<std::size_t>(text.ends_with("==") ? 2 : text.ends_with('='));
  out.resize(static_cast<std::size_t>(size) - padding);
  return out;
}

}  // namespace

/// Takes the credentials of one context out of a parsed kubeconfig. yaml-cpp throws: the caller
/// catches.
class KubeconfigReader {
 public:
  explicit KubeconfigReader(const std::string& path) : path_(path) {
    const auto slash = path.rfind('/');
    if (slash != std::string::npos) folder_ = path.substr(0, slash + 1);
  }

  Result<Credentials> read(const YAML::Node& root, std::string context_name) {
    if (!root.IsMap()) return problem("it is not a YAML map");
    if (context_name.empty()) context_name = text_of(root, "current-context");
    if (context_name.empty()) return problem("it has no current-context", "name a context");
    auto context = find_named(root, "contexts", "context", context_name);
    if (!context) return fail(context.error());
    auto cluster = find_named(root, "clusters", "cluster", text_of(*context, "cluster"));
    if (!cluster) return fail(cluster.error());
    const std::string name = text_of(*context, "namespace");
    if (!name.empty()) credentials_.namespace_ = name;
    if (auto read = read_cluster(*cluster); !read) return fail(read.error());

    const std::string user_name = text_of(*context, "user");
    if (!user_name.empty()) {
      auto user = find_named(root, "users", "user", user_name);
      if (!user) return fail(user.error());
      if (auto read = read_user(*user); !read) return fail(read.error());
    }
    if (auto complete = credentials_.check(); !complete) return fail(complete.error());
    return std::move(credentials_);
  }

  tl::unexpected<Error> problem(std::string cause, std::string hint = "") const {
    return fail(Error{kOperation, path_, std::move(cause), std::move(hint), 0});
  }

 private:
  static std::string text_of(const YAML::Node& map, const char* key) {
    if (!map.IsMap()) return "";
    const YAML::Node value = map[key];
    return value && value.IsScalar() ? value.Scalar() : "";
  }

  /// The `content` of the entry of the list `list` that is called `name`.
  Result<YAML::Node> find_named(const YAML::Node& root, const char* list, const char* content,
                                const std::string& name) const {
    const YAML::Node entries = root[list];
    if (entries && entries.IsSequence()) {
      for (const YAML::Node& entry : entries) {
        if (text_of(entry, "name") == name && entry[content] && entry[content].IsMap())
          return entry[content];
      }
    }
    return problem(fmt::format("{} has no entry named \"{}\"", list, escape_terminal(name)));
  }

  Status read_cluster(const YAML::Node& cluster) {
    auto endpoint = parse_server_url(text_of(cluster, "server"));
    if (!endpoint) return problem(endpoint.error().message());
    credentials_.endpoint_ = std::move(*endpoint);
    for (const char* key : {"proxy-url", "tls-server-name"}) {
      if (!text_of(cluster, key).empty())
        return problem(fmt::format("the cluster's {} is not supported", key));
    }
    const std::string skip = text_of(cluster, "insecure-skip-tls-verify");
    if (!skip.empty() && skip != "true" && skip != "false")
      return problem("insecure-skip-tls-verify is neither true nor false");
    credentials_.skip_verification_ = skip == "true";
    return read_source(cluster, "certificate-authority", credentials_.authorities_);
  }

  Status read_user(const YAML::Node& user) {
    for (const char* key : {"exec", "auth-provider", "username"}) {
      if (user[key]) {
        return problem(fmt::format("the user's {} is not supported", key),
                       "use a token or a client certificate, or the address of a kubectl proxy");
      }
    }
    if (auto read = read_source(user, "client-certificate", credentials_.client_certificate_);
        !read)
      return read;
    if (auto read = read_source(user, "client-key", credentials_.client_key_); !read) return read;
    if (credentials_.client_certificate_.empty() != credentials_.client_key_.empty())
      return problem("a client certificate and its key belong together, and one is missing");
    credentials_.token_.text = text_of(user, "token");
    const std::string file = text_of(user, "tokenFile");
    if (!file.empty()) credentials_.token_.file = resolve(file);
    return {};
  }

  /// `key`-data wins over the file that `key` names, as in kubectl.
  Status read_source(const YAML::Node& map, const std::string& key, SecretSource& source) const {
    const std::string data = text_of(map, (key + "-data").c_str());
    if (!data.empty()) {
      auto decoded = decode_base64(data);
      if (!decoded) return problem(key + "-data is not base64");
      source.text = std::move(*decoded);
      return {};
    }
    const std::string file = text_of(map, key.c_str());
    if (!file.empty()) source.file = resolve(file);
    return {};
  }

  std::string resolve(const std::string& file) const {
    return file.starts_with('/') ? file : folder_ + file;
  }

  const std::string path_;
  std::string folder_;
  Credentials credentials_;
};

Result<Credentials> Credentials::from_kubeconfig(const std::string& path,
                                                 const std::string& context) {
  auto text = read_text_file(path, kMaxKubeconfigBytes, kOperation);
  if (!text) return fail(text.error());
  KubeconfigReader reader(path);
  try {
    return reader.read(YAML::Load(*text), context);
  } catch (const YAML::Exception& error) {
    return reader.problem(fmt::format("line {}: not valid YAML: {}", error.mark.line + 1,
                                      escape_terminal(error.msg)));
  } catch (const std::exception& error) {
    return reader.problem(escape_terminal(error.what()));
  }
}

}  // namespace ingero::k8s
