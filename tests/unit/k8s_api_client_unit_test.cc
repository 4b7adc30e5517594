// SPDX-License-Identifier: Apache-2.0
// Requests and their answers, and whom the client trusts.
#include "k8s/api_client.h"

#include <gmock/gmock.h>

#include "api_server_test.h"
#include "k8s/api_object.h"

namespace ingero::k8s {
namespace {

using testing::HasSubstr;

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

TEST_F(ApiServerTest, AServerThatIsNotThereIsAnErrorWithItsAddress) {
  port = 1;
  const auto answer = ApiClient(credentials(trust(authority))).get("/pods", {});
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, 0);
  EXPECT_THAT(answer.error().message(), HasSubstr("https://127.0.0.1:1/pods): no connection"));
}

}  // namespace
}  // namespace ingero::k8s
