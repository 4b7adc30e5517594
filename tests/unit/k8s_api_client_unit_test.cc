// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "base/unique_fd.h"
#include "k8s/api_client.h"
#include "k8s/informer.h"

namespace ingero::k8s {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using Time = std::chrono::steady_clock;

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

std::string base64(const std::string& text) {
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
    std::string pattern = (fs::temp_directory_path() / "ingero-api-XXXXXX").string();
    folder = ::mkdtemp(pattern.data());
  }
  ~ApiServerTest() override {
    finish.request_stop();
    if (server) server->stop();
    if (thread.joinable()) thread.join();
    fs::remove_all(folder);
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
  fs::path folder;
  int port = 0;
  std::stop_source finish;
  std::atomic<bool> keep_open{false};
  std::atomic<bool> cut{false};
  std::string authorization;
  std::string accept_encoding;
  std::unique_ptr<httplib::SSLServer> server;
  std::thread thread;
};

TEST_F(ApiServerTest, AGetIsAnsweredOverVerifiedTlsWithTheToken) {
  serve(certificate);
  ApiClient client(credentials(trust(authority)));
  const auto answer = client.get_json("/pods");
  ASSERT_TRUE(answer) << answer.error().message();
  EXPECT_EQ((*answer)["kind"], "PodList");
  EXPECT_EQ(authorization, "Bearer first");
  EXPECT_EQ(accept_encoding, "identity");
  ApiClient by_name(credentials(trust(authority), "", "localhost"));
  EXPECT_TRUE(by_name.get("/pods", {}));
}

TEST_F(ApiServerTest, ATokenThatWasRotatedIsSentWithTheNextRequest) {
  serve(certificate);
  const auto file = folder / "token";
  std::ofstream(file) << "old";
  ApiClient client(credentials(trust(authority), "tokenFile: " + file.string()));
  ASSERT_TRUE(client.get("/pods", {}));
  EXPECT_EQ(authorization, "Bearer old");
  std::ofstream(file) << "new";
  ASSERT_TRUE(client.get("/pods", {}));
  EXPECT_EQ(authorization, "Bearer new");
}

TEST_F(ApiServerTest, ACertificateOfAnotherAuthorityIsRefused) {
  serve(certificate);
  ApiClient client(credentials(trust(rogue)));
  const auto answer = client.get("/pods", {});
  ASSERT_FALSE(answer);
  EXPECT_THAT(answer.error().message(), HasSubstr("certificate is refused"));
  EXPECT_EQ(authorization, "") << "the token must not leave before the server is known";
}

TEST_F(ApiServerTest, TheAuthoritiesOfTheSystemDoNotCountBesideTheGivenOnes) {
  serve(certificate);
  const auto bundle = folder / "system.pem";
  std::ofstream(bundle) << authority.pem();
  ::setenv("SSL_CERT_FILE", bundle.c_str(), 1);
  EXPECT_TRUE(ApiClient(credentials("namespace: x")).get("/pods", {}))
      << "none given: the system's";
  EXPECT_FALSE(ApiClient(credentials(trust(rogue))).get("/pods", {}));
  ::unsetenv("SSL_CERT_FILE");
}

TEST_F(ApiServerTest, ACertificateForAnotherNameIsRefusedEvenIfItsCommonNameFits) {
  serve(Certificate("127.0.0.1", "DNS:elsewhere.example", &authority));
  EXPECT_FALSE(ApiClient(credentials(trust(authority))).get("/pods", {}));
}

TEST_F(ApiServerTest, VerificationCanBeSkippedOnRequest) {
  serve(Certificate("other", "DNS:elsewhere.example", &rogue));
  EXPECT_TRUE(ApiClient(credentials("insecure-skip-tls-verify: true")).get("/pods", {}));
}

TEST_F(ApiServerTest, AClientCertificateIsPresentedWhereTheServerAsksForOne) {
  X509_STORE* store = X509_STORE_new();
  X509_STORE_add_cert(store, authority.x509());
  serve(certificate, store);
  const Certificate user("user", "", &authority);
  const std::string identity = "client-certificate-data: " + base64(user.pem()) +
                               ", client-key-data: " + base64(user.key_pem());
  const auto answer = ApiClient(credentials(trust(authority), identity)).get("/pods", {});
  EXPECT_TRUE(answer) << answer.error().message();
  EXPECT_FALSE(ApiClient(credentials(trust(authority))).get("/pods", {})) << "without one";
}

TEST_F(ApiServerTest, TlsMaterialThatIsNoneIsAnErrorThatNamesIt) {
  serve(certificate);
  const auto bad =
      ApiClient(credentials("certificate-authority-data: " + base64("no PEM"))).get("/pods", {});
  ASSERT_FALSE(bad);
  EXPECT_THAT(bad.error().message(), HasSubstr("certificate authority"));
  const std::string mismatch = "client-certificate-data: " + base64(certificate.pem()) +
                               ", client-key-data: " + base64(rogue.key_pem());
  const auto unfit = ApiClient(credentials(trust(authority), mismatch)).get("/pods", {});
  ASSERT_FALSE(unfit);
  EXPECT_THAT(unfit.error().message(), HasSubstr("does not belong"));
}

TEST_F(ApiServerTest, ARefusalCarriesTheStatusAndTheServersReason) {
  serve(certificate);
  ApiClient client(credentials(trust(authority)));
  for (const int status : {401, 403, 404, 410, 429, 500, 504}) {
    const auto answer = client.get("/status/" + std::to_string(status), {});
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().code, status);
    EXPECT_THAT(answer.error().message(), HasSubstr(std::to_string(status)));
    const auto watched = client.watch("/status/" + std::to_string(status), std::chrono::seconds(5),
                                      [](std::string_view) { return true; }, {});
    ASSERT_FALSE(watched);
    EXPECT_EQ(watched.error().code, status);
  }
  const auto refused = client.get("/status/403", {});
  EXPECT_THAT(refused.error().cause, HasSubstr("cannot list resource \"pods\" in API group"));
  EXPECT_THAT(refused.error().hint, HasSubstr("ClusterRole"));
}

TEST_F(ApiServerTest, AWriteSendsItsBodyAndGivesTheObjectThatTheServerAnswers) {
  serve(certificate);
  std::string seen;
  const auto echo = [&](const httplib::Request& request, httplib::Response& response) {
    seen = request.method + " " + request.target + " " + request.get_header_value("Content-Type") +
           " " + request.get_header_value("Authorization") + " " + request.body;
    response.status = request.method == "POST" ? 201 : 200;
    response.set_content(R"({"metadata":{"resourceVersion":"8"}})", "application/json");
  };
  server->Post("/o", echo);
  server->Put("/o", echo);
  server->Patch("/o", echo);
  ApiClient client(credentials(trust(authority)));
  const nlohmann::json body{{"a", 1}};
  const auto send = [&](WriteMethod method, const std::string& path, BodyType type) {
    const auto answer = client.send(method, path, body, type, {});
    EXPECT_TRUE(answer) << answer.error().message();
    EXPECT_EQ(text_at(answer.value_or(nlohmann::json()), {"metadata", "resourceVersion"}), "8");
    return seen;
  };
  EXPECT_EQ(send(WriteMethod::post, "/o", BodyType::json),
            R"(POST /o?fieldManager=ingero application/json Bearer first {"a":1})");
  EXPECT_EQ(send(WriteMethod::put, "/o?x=1", BodyType::json),
            R"(PUT /o?x=1&fieldManager=ingero application/json Bearer first {"a":1})");
  EXPECT_EQ(send(WriteMethod::patch, "/o", BodyType::merge_patch),
            "PATCH /o?fieldManager=ingero application/merge-patch+json Bearer first {\"a\":1}");
  EXPECT_EQ(send(WriteMethod::patch, "/o", BodyType::apply),
            "PATCH /o?fieldManager=ingero&force=true application/apply-patch+yaml Bearer first "
            "{\"a\":1}");
  EXPECT_TRUE(client.send(WriteMethod::post, "/o", {{"bad", "\xff"}}, BodyType::json, {}));
  EXPECT_THAT(seen, HasSubstr("\xEF\xBF\xBD"));
}

TEST_F(ApiServerTest, AWriteThatIsRefusedCarriesTheStatusAndTheServersReason) {
  serve(certificate);
  server->Put("/held", [](const httplib::Request&, httplib::Response& response) {
    response.status = 409;
    response.set_content(R"({"kind":"Status","message":"the object has been modified"})",
                         "text/json");
  });
  server->Put("/odd", [](const httplib::Request&, httplib::Response& response) {
    response.set_content("no JSON", "text/plain");
  });
  ApiClient client(credentials(trust(authority)));
  const auto held = client.send(WriteMethod::put, "/held", {}, BodyType::json, {});
  ASSERT_FALSE(held);
  EXPECT_EQ(held.error().code, kHttpConflict);
  EXPECT_EQ(held.error().operation, "PUT");
  EXPECT_EQ(held.error().cause, "409 Conflict: the object has been modified");
  EXPECT_THAT(client.send(WriteMethod::put, "/odd", {}, BodyType::json, {}).error().cause,
              HasSubstr("not valid JSON"));
  EXPECT_EQ(client.send(WriteMethod::post, "/none", {}, BodyType::json, {}).error().code, 404);
}

TEST_F(ApiServerTest, AWatchDeliversWholeLinesAndEndsWithTheServer) {
  serve(certificate);
  ApiClient client(credentials(trust(authority)));
  std::vector<std::string> lines;
  const auto on_line = [&](std::string_view line) {
    lines.emplace_back(line);
    return true;
  };
  const auto ended = client.watch("/watch", std::chrono::seconds(20), on_line, {});
  EXPECT_TRUE(ended) << ended.error().message();
  EXPECT_THAT(lines, ElementsAre(R"({"type":"ADDED"})", R"({"type":"DELETED"})"));
  cut = true;
  EXPECT_FALSE(client.watch("/watch", std::chrono::seconds(20), on_line, {})) << "cut is no end";
}

TEST_F(ApiServerTest, AWatchDeliversAnEventWhileTheConnectionStaysOpenAndEndsOnStop) {
  keep_open = true;
  serve(certificate);
  ApiClient client(credentials(trust(authority)));
  std::promise<void> second;
  std::stop_source stop;
  int count = 0;
  auto watched = std::async(std::launch::async, [&] {
    return client.watch(
        "/watch", std::chrono::seconds(60),
        [&](std::string_view) {
          if (++count == 2) second.set_value();
          return true;
        },
        stop.get_token());
  });
  ASSERT_EQ(second.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
  const auto begin = Time::now();
  stop.request_stop();
  EXPECT_FALSE(watched.get());
  EXPECT_LT(Time::now() - begin, std::chrono::seconds(20));  // not until a timeout
}

TEST_F(ApiServerTest, AWatchEndsAtItsLimitAndWhenTheReceiverHasEnough) {
  keep_open = true;
  serve(certificate);
  ApiClient client(credentials(trust(authority)));
  const auto expired =
      client.watch("/watch", std::chrono::seconds(1), [](std::string_view) { return true; }, {});
  ASSERT_FALSE(expired);
  EXPECT_THAT(expired.error().message(), HasSubstr("too long"));
  EXPECT_TRUE(
      client.watch("/watch", std::chrono::seconds(20), [](std::string_view) { return false; }, {}));
}

TEST_F(ApiServerTest, AnAnswerThatIsTooLongIsRefused) {
  serve(certificate);
  ApiClientOptions options;
  options.max_body_bytes = 10;
  options.max_line_bytes = 10;
  ApiClient client(credentials(trust(authority)), options);
  EXPECT_THAT(client.get("/pods", {}).error().cause, HasSubstr("longer than 10 bytes"));
  const auto watched =
      client.watch("/watch", std::chrono::seconds(20), [](std::string_view) { return true; }, {});
  ASSERT_FALSE(watched);
  EXPECT_THAT(watched.error().cause, HasSubstr("longer than 10 bytes"));
}

TEST_F(ApiServerTest, AStopEndsTheHandshakeWithAServerThatSaysNothing) {
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(listener.get(), 8), 0);
  ASSERT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  port = ntohs(address.sin_port);
  ApiClient client(credentials(trust(authority)));
  std::stop_source stop;
  auto answer =
      std::async(std::launch::async, [&] { return client.get("/pods", stop.get_token()); });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const auto begin = Time::now();
  stop.request_stop();
  EXPECT_FALSE(answer.get());
  EXPECT_LT(Time::now() - begin, std::chrono::seconds(20));  // not until a timeout

  ApiClientOptions options;
  options.request_limit = std::chrono::seconds(1);
  const auto late = ApiClient(credentials(trust(authority)), options).get("/pods", {});
  ASSERT_FALSE(late);
  EXPECT_THAT(late.error().cause, HasSubstr("too long"));
}

TEST_F(ApiServerTest, AServerThatIsNotThereIsAnErrorWithItsAddress) {
  port = 1;
  const auto answer = ApiClient(credentials(trust(authority))).get("/pods", {});
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, 0);
  EXPECT_THAT(answer.error().message(), HasSubstr("https://127.0.0.1:1/pods): no connection"));
}

TEST_F(ApiServerTest, AnInformerStopsWithinASecondWhileItsWatchIsSilent) {
  keep_open = true;
  serve(certificate);
  server->Get("/list", [this](const httplib::Request& request, httplib::Response& response) {
    if (!request.has_param("watch"))
      return response.set_content(R"({"metadata":{"resourceVersion":"7"},"items":null})",
                                  "text/json");
    response.set_chunked_content_provider(
        "text/json", [this](std::size_t, httplib::DataSink& sink) {
          const std::string line =
              R"({"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"8"}}})"
              "\n";
          sink.write(line.data(), line.size());
          while (!finish.stop_requested())
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
          return false;
        });
  });
  ApiClient client(credentials(trust(authority)));
  std::promise<void> changed;
  InformerOptions options;
  options.path = "/list";
  auto informer = Informer::start(client, options,
                                  {[](std::vector<nlohmann::json>) {},
                                   [&](ChangeType, nlohmann::json) { changed.set_value(); }});
  ASSERT_TRUE(informer);
  ASSERT_EQ(changed.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
  const auto begin = Time::now();
  (*informer)->stop();
  EXPECT_LT(Time::now() - begin, std::chrono::seconds(20));  // not until a timeout
}

}  // namespace
}  // namespace ingero::k8s
