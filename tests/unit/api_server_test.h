// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <httplib.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "k8s/credentials.h"

namespace ingero::k8s {

struct CertificateDeleter {
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};

/// A certificate with its key, made for the test.
class Certificate {
 public:
  /// Signed by `issuer`; none: an authority that signs itself.
  Certificate(const std::string& name, const std::string& alternative_names,
              const Certificate* issuer)
      : key_(EVP_EC_gen("P-256")), certificate_(X509_new()) {
    static std::atomic<long> serial{1};
    X509* x509 = certificate_.get();
    X509_set_version(x509, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(x509), serial++);
    X509_gmtime_adj(X509_getm_notBefore(x509), -3600);
    X509_gmtime_adj(X509_getm_notAfter(x509), 3600);
    X509_set_pubkey(x509, key_.get());
    X509_NAME_add_entry_by_txt(X509_get_subject_name(x509), "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
    const Certificate& signer = issuer == nullptr ? *this : *issuer;
    X509_set_issuer_name(x509, X509_get_subject_name(signer.certificate_.get()));
    extend(NID_basic_constraints, issuer == nullptr ? "critical,CA:TRUE" : "CA:FALSE");
    if (!alternative_names.empty()) extend(NID_subject_alt_name, alternative_names);
    EXPECT_GT(X509_sign(x509, signer.key_.get(), EVP_sha256()), 0);
  }

  X509* x509() const { return certificate_.get(); }
  EVP_PKEY* key() const { return key_.get(); }
  std::string pem() const {
    return write([this](BIO* bio) { return PEM_write_bio_X509(bio, x509()); });
  }
  std::string key_pem() const {
    return write([this](BIO* bio) {
      return PEM_write_bio_PrivateKey(bio, key(), nullptr, nullptr, 0, nullptr, nullptr);
    });
  }

 private:
  void extend(int nid, const std::string& value) {
    X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, nullptr, nid, value.c_str());
    ASSERT_NE(extension, nullptr);
    X509_add_ext(certificate_.get(), extension, -1);
    X509_EXTENSION_free(extension);
  }
  template <typename Write>
  static std::string write(Write&& fill) {
    BIO* bio = BIO_new(BIO_s_mem());
    EXPECT_EQ(fill(bio), 1);
    char* data = nullptr;
    const long size = BIO_get_mem_data(bio, &data);
    std::string text(data, static_cast<std::size_t>(size));
    BIO_free(bio);
    return text;
  }

  std::unique_ptr<EVP_PKEY, CertificateDeleter> key_;
  std::unique_ptr<X509, CertificateDeleter> certificate_;
};

inline std::string base64(const std::string& text) {
  std::string out(text.size() / 3 * 4 + 5, '\0');
  const int size = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                                   reinterpret_cast<const unsigned char*>(text.data()),
                                   static_cast<int>(text.size()));
  out.resize(static_cast<std::size_t>(size));
  return out;
}

/// A TLS server that runs until the end of the test.
class ApiServerTest : public testing::Test {
 protected:
  ApiServerTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "ingero-api-XXXXXX").string();
    folder = ::mkdtemp(pattern.data());
  }
  ~ApiServerTest() override {
    finish.request_stop();
    if (server) server->stop();
    if (thread.joinable()) thread.join();
    std::filesystem::remove_all(folder);
  }

  void serve(const Certificate& identity, X509_STORE* client_authorities = nullptr) {
    server =
        std::make_unique<httplib::SSLServer>(identity.x509(), identity.key(), client_authorities);
    ASSERT_TRUE(server->is_valid());
    server->Get("/pods", [this](const httplib::Request& request, httplib::Response& response) {
      authorization = request.get_header_value("Authorization");
      accept_encoding = request.get_header_value("Accept-Encoding");
      response.set_content(R"({"kind":"PodList"})", "application/json");
    });
    server->Get(R"(/status/(\d+))",
                [](const httplib::Request& request, httplib::Response& response) {
                  response.status = std::stoi(request.matches[1]);
                  std::ifstream file(std::string(INGERO_TEST_DATA) + "/k8s/forbidden.json");
                  response.set_content(std::string(std::istreambuf_iterator<char>(file), {}),
                                       "application/json");
                });
    server->Get("/watch", [this](const httplib::Request&, httplib::Response& response) {
      response.set_chunked_content_provider(
          "application/json",
          [this](std::size_t, httplib::DataSink& sink) { return stream(sink); });
    });
    port = server->bind_to_any_port("127.0.0.1");
    thread = std::thread([this] { server->listen_after_bind(); });
    while (!server->is_running()) std::this_thread::yield();
  }

  /// Two events in pieces that do not end where lines do, then what the test asks for.
  bool stream(httplib::DataSink& sink) {
    for (const std::string piece : {"{\"type\":\"AD", "DED\"}\n{\"type\":\"DELETED\"}\n{\"cut"}) {
      if (!sink.write(piece.data(), piece.size())) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    while (keep_open && !finish.stop_requested())
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    if (cut) return false;
    sink.done();
    return true;
  }

  Credentials credentials(const std::string& cluster, const std::string& user = "token: first",
                          const std::string& host = "127.0.0.1") {
    const auto path = folder / "config";
    std::ofstream(path) << "current-context: c\n"
                           "contexts: [{name: c, context: {cluster: c, user: c}}]\n"
                        << "clusters: [{name: c, cluster: {server: 'https://" << host << ":" << port
                        << "', " << cluster << "}}]\nusers: [{name: c, user: {" << user << "}}]\n";
    auto read = Credentials::from_kubeconfig(path.string());
    EXPECT_TRUE(read) << read.error().message();
    return *read;
  }
  std::string trust(const Certificate& trusted) {
    return "certificate-authority-data: " + base64(trusted.pem());
  }

  const Certificate authority{"test authority", "", nullptr};
  const Certificate rogue{"rogue authority", "", nullptr};
  const Certificate certificate{"api", "IP:127.0.0.1,DNS:localhost", &authority};
  std::filesystem::path folder;
  int port = 0;
  std::stop_source finish;
  std::atomic<bool> keep_open{false};
  std::atomic<bool> cut{false};
  std::string authorization;
  std::string accept_encoding;
  std::unique_ptr<httplib::SSLServer> server;
  std::thread thread;
};

}  // namespace ingero::k8s
