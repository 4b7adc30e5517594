// SPDX-License-Identifier: Apache-2.0
#include "k8s/tls_client.h"

#include <arpa/inet.h>
#include <httplib.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <vector>

namespace ingero::k8s {

namespace {

struct OpensslDeleter {
  void operator()(BIO* bio) const { BIO_free_all(bio); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(X509_STORE* store) const { X509_STORE_free(store); }
};
template <typename T>
using Owned = std::unique_ptr<T, OpensslDeleter>;

/// OpenSSL's first error of this thread, and an empty queue afterwards.
std::string take_openssl_error() {
  const auto code = ERR_get_error();
  ERR_clear_error();
  const char* reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  return reason == nullptr ? "OpenSSL gives no reason" : reason;
}

/// An encrypted key must fail: without this, OpenSSL asks the terminal for the password.
int refuse_password(char*, int, int, void*) { return -1; }

Result<std::vector<Owned<X509>>> read_certificates(const std::string& pem,
                                                   const std::string& what) {
  const Owned<BIO> bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  std::vector<Owned<X509>> certificates;
  while (X509* next = PEM_read_bio_X509(bio.get(), nullptr, refuse_password, nullptr))
    certificates.emplace_back(next);
  const auto last = ERR_peek_last_error();
  const bool at_end =
      ERR_GET_LIB(last) == ERR_LIB_PEM && ERR_GET_REASON(last) == PEM_R_NO_START_LINE;
  if (certificates.empty() || !at_end) {
    return fail(Error{"read " + what, "", "not a PEM certificate: " + take_openssl_error(),
                      "it begins with -----BEGIN CERTIFICATE-----", 0});
  }
  ERR_clear_error();
  return certificates;
}

Status trust_authorities(httplib::SSLClient& client, const std::string& pem) {
  if (pem.empty()) return {};
  auto certificates = read_certificates(pem, "certificate authority");
  if (!certificates) return fail(certificates.error());
  X509_STORE* store = SSL_CTX_get_cert_store(client.ssl_context());
  for (const auto& certificate : *certificates) {
    if (X509_STORE_add_cert(store, certificate.get()) != 1)
      return fail(Error{"read certificate authority", "", take_openssl_error(), "", 0});
  }
  // Unless it is given a file or folder, cpp-httplib adds the system's authorities, and any public
  // one could then sign for the API server. No name below /dev/null exists.
  client.set_ca_cert_path("", "/dev/null");
  return {};
}

Status present_certificate(SSL_CTX* context, const TlsMaterial& material) {
  if (material.client_certificate.empty()) return {};
  const auto problem = [](const char* cause) {
    return fail(Error{"use client certificate", "",
                      fmt::format("{}: {}", cause, take_openssl_error()), "", 0});
  };
  auto chain = read_certificates(material.client_certificate, "client certificate");
  if (!chain) return fail(chain.error());
  const Owned<BIO> bio(
      BIO_new_mem_buf(material.client_key.data(), static_cast<int>(material.client_key.size())));
  const Owned<EVP_PKEY> key(PEM_read_bio_PrivateKey(bio.get(), nullptr, refuse_password, nullptr));
  if (!key) return problem("its key is not an unencrypted PEM key");
  if (SSL_CTX_use_certificate(context, chain->front().get()) != 1 ||
      SSL_CTX_use_PrivateKey(context, key.get()) != 1)
    return problem("the key does not belong to it");
  for (std::size_t i = 1; i < chain->size(); ++i) {
    if (SSL_CTX_add1_chain_cert(context, (*chain)[i].get()) != 1)
      return problem("its chain is not usable");
  }
  return {};
}

/// OpenSSL's own check of the name, beside cpp-httplib's: that one takes the common name of a
/// certificate whose alternative names do not match.
bool expect_name(SSL_CTX* context, const std::string& host) {
  X509_VERIFY_PARAM* parameters = SSL_CTX_get0_param(context);
  in6_addr address{};
  const bool is_address = ::inet_pton(AF_INET, host.c_str(), &address) == 1 ||
                          ::inet_pton(AF_INET6, host.c_str(), &address) == 1;
  if (is_address) return X509_VERIFY_PARAM_set1_ip_asc(parameters, host.c_str()) == 1;
  X509_VERIFY_PARAM_set_hostflags(parameters, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  return X509_VERIFY_PARAM_set1_host(parameters, host.data(), host.size()) == 1;
}

}  // namespace

Result<std::unique_ptr<httplib::ClientImpl>> make_http_client(const ApiEndpoint& endpoint,
                                                              const TlsMaterial& material) {
  if (!endpoint.tls) return std::make_unique<httplib::ClientImpl>(endpoint.host, endpoint.port);
  ERR_clear_error();
  auto client = std::make_unique<httplib::SSLClient>(endpoint.host, endpoint.port);
  SSL_CTX* context = client->ssl_context();
  if (context == nullptr)
    return fail(Error{"prepare TLS", to_string(endpoint), take_openssl_error(), "", 0});
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  if (auto trusted = trust_authorities(*client, material.authorities); !trusted)
    return fail(trusted.error());
  if (auto presented = present_certificate(context, material); !presented)
    return fail(presented.error());
  client->enable_server_certificate_verification(!material.skip_verification);
  if (!material.skip_verification && !expect_name(context, endpoint.host))
    return fail(Error{"prepare TLS", to_string(endpoint), take_openssl_error(), "", 0});
  return client;
}

std::string describe_verification(const httplib::ClientImpl& client) {
  const auto* tls = dynamic_cast<const httplib::SSLClient*>(&client);
  if (tls == nullptr || tls->get_openssl_verify_result() == X509_V_OK) return "";
  return X509_verify_cert_error_string(tls->get_openssl_verify_result());
}

}  // namespace ingero::k8s
