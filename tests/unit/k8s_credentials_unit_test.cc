// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "k8s/credentials.h"

namespace ingero::k8s {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

/// A directory that goes with the test.
class TemporaryTree {
 public:
  TemporaryTree() {
    std::string pattern = (fs::temp_directory_path() / "ingero-k8s-XXXXXX").string();
    root_ = ::mkdtemp(pattern.data());
  }
  ~TemporaryTree() { fs::remove_all(root_); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(root_ / name) << text;
    return (root_ / name).string();
  }
  std::string path() const { return root_.string(); }
  void remove(const std::string& name) const { fs::remove(root_ / name); }

 private:
  fs::path root_;
};

class InClusterTest : public testing::Test {
 protected:
  InClusterTest() {
    tree.write("token", "first.token\n");
    tree.write("ca.crt", "authority\n");
    tree.write("namespace", "ingero");
  }
  Result<Credentials> find() {
    return Credentials::in_cluster({tree.path(), [this](const std::string& name) {
                                      const auto found = environment.find(name);
                                      return found == environment.end()
                                                 ? std::nullopt
                                                 : std::optional<std::string>(found->second);
                                    }});
  }

  TemporaryTree tree;
  std::map<std::string, std::string> environment{{"KUBERNETES_SERVICE_HOST", "10.96.0.1"},
                                                 {"KUBERNETES_SERVICE_PORT", "443"}};
};

TEST_F(InClusterTest, TheServiceAccountOfThePodIsFound) {
  const auto credentials = find();
  ASSERT_TRUE(credentials) << credentials.error().message();
  EXPECT_EQ(credentials->endpoint(), (ApiEndpoint{"10.96.0.1", 443, true, ""}));
  EXPECT_EQ(credentials->default_namespace(), "ingero");
  EXPECT_EQ(credentials->token(), "first.token");
  EXPECT_EQ(credentials->tls()->authorities, "authority\n");
  EXPECT_FALSE(credentials->tls()->skip_verification);
}

TEST_F(InClusterTest, ARotatedTokenAndAuthorityHoldAtTheNextQuestion) {
  const auto credentials = find();
  ASSERT_TRUE(credentials);
  tree.write("token", "second.token");
  tree.write("ca.crt", "new authority");
  EXPECT_EQ(credentials->token(), "second.token");
  EXPECT_EQ(credentials->tls()->authorities, "new authority");
}

TEST_F(InClusterTest, AnAddressOfIpv6IsTaken) {
  environment["KUBERNETES_SERVICE_HOST"] = "fd00::1";
  EXPECT_EQ(to_string(find()->endpoint()), "https://[fd00::1]:443");
}

TEST_F(InClusterTest, OutsideAPodTheErrorSaysSo) {
  environment.clear();
  const auto credentials = find();
  ASSERT_FALSE(credentials);
  EXPECT_THAT(credentials.error().message(), HasSubstr("runs in no pod"));
  EXPECT_THAT(credentials.error().hint, HasSubstr("kubeconfig"));
}

TEST_F(InClusterTest, AMissingTokenNamesTheFileAndTheServiceAccount) {
  tree.remove("token");
  const auto credentials = find();
  ASSERT_FALSE(credentials);
  EXPECT_THAT(credentials.error().message(), HasSubstr(tree.path() + "/token"));
  EXPECT_THAT(credentials.error().hint, HasSubstr("automountServiceAccountToken"));
}

TEST_F(InClusterTest, AMissingOrEmptyAuthorityIsAnErrorRatherThanTrustInTheSystem) {
  tree.write("ca.crt", "");
  EXPECT_FALSE(find());
  tree.remove("ca.crt");
  EXPECT_FALSE(find());
}

TEST_F(InClusterTest, ATokenThatWouldAddAHeaderIsRefusedAndNotShown) {
  tree.write("token", "secret\r\nX-Remote-User: admin");
  const auto credentials = find();
  ASSERT_FALSE(credentials);
  EXPECT_THAT(credentials.error().message(), testing::Not(HasSubstr("secret")));
}

TEST_F(InClusterTest, APortThatIsNoneIsRefused) {
  for (const char* port : {"0", "65536", "tcp://10.0.0.1:443", "44 3"}) {
    environment["KUBERNETES_SERVICE_PORT"] = port;
    EXPECT_FALSE(find()) << port;
  }
}

TEST(ServerUrlTest, AddressesOfAllFormsAreRead) {
  EXPECT_EQ(parse_server_url("https://10.0.0.1:6443"), (ApiEndpoint{"10.0.0.1", 6443, true, ""}));
  EXPECT_EQ(parse_server_url("https://api.example"), (ApiEndpoint{"api.example", 443, true, ""}));
  EXPECT_EQ(parse_server_url("https://[::1]:6443/"), (ApiEndpoint{"::1", 6443, true, ""}));
  EXPECT_EQ(parse_server_url("https://r.example/k8s/clusters/c-1/"),
            (ApiEndpoint{"r.example", 443, true, "/k8s/clusters/c-1"}));
  EXPECT_EQ(parse_server_url("http://127.0.0.1:8001"), (ApiEndpoint{"127.0.0.1", 8001, false, ""}));
}

TEST(ServerUrlTest, WhatIsNoAddressIsRefused) {
  for (const char* url : {"", "10.0.0.1:6443", "ftp://a", "https://", "https://:6443",
                          "https://a:0", "https://a:99999", "https://a:x", "https://[::1",
                          "https://[::1]x", "https://user@host", "https://a b", "https://a/x?y"}) {
    EXPECT_FALSE(parse_server_url(url)) << url;
  }
}

class KubeconfigTest : public testing::Test {
 protected:
  Result<Credentials> read(const std::string& cluster, const std::string& user,
                           const std::string& context = "") {
    return Credentials::from_kubeconfig(
        tree.write("config",
                   "apiVersion: v1\nkind: Config\ncurrent-context: main\n"
                   "contexts:\n"
                   "- {name: other, context: {cluster: none, user: none}}\n"
                   "- name: main\n"
                   "  context: {cluster: c1, user: u1, namespace: team}\n"
                   "clusters:\n- name: c1\n  cluster: {" +
                       cluster +
                       "}\n"
                       "users:\n- name: u1\n  user: {" +
                       user + "}\n"),
        context);
  }
  TemporaryTree tree;
  const std::string server = "server: 'https://10.0.0.1:6443'";
};

TEST_F(KubeconfigTest, DataInTheFileIsDecoded) {
  const auto credentials =
      read(server + ", certificate-authority-data: YXV0aG9yaXR5",
           "client-certificate-data: Y2VydA==, client-key-data: a2V5cw==, token: abc");
  ASSERT_TRUE(credentials) << credentials.error().message();
  EXPECT_EQ(credentials->endpoint().port, 6443);
  EXPECT_EQ(credentials->default_namespace(), "team");
  EXPECT_EQ(credentials->token(), "abc");
  const auto material = credentials->tls();
  ASSERT_TRUE(material);
  EXPECT_EQ(material->authorities, "authority");
  EXPECT_EQ(material->client_certificate, "cert");
  EXPECT_EQ(material->client_key, "keys");
  EXPECT_FALSE(material->skip_verification);
}

TEST_F(KubeconfigTest, FilesAreRelativeToTheKubeconfig) {
  tree.write("ca.pem", "authority");
  tree.write("token.txt", "from-file");
  const auto credentials = read(server + ", certificate-authority: ca.pem", "tokenFile: token.txt");
  ASSERT_TRUE(credentials) << credentials.error().message();
  EXPECT_EQ(credentials->tls()->authorities, "authority");
  EXPECT_EQ(credentials->token(), "from-file");
}

TEST_F(KubeconfigTest, VerificationIsSkippedOnlyWhenTheFileSaysSo) {
  EXPECT_TRUE(read(server + ", insecure-skip-tls-verify: true", "")->tls()->skip_verification);
  EXPECT_FALSE(read(server + ", insecure-skip-tls-verify: false", "")->tls()->skip_verification);
  EXPECT_FALSE(read(server + ", insecure-skip-tls-verify: maybe", ""));
}

TEST_F(KubeconfigTest, ATokenIsNotSentWithoutTls) {
  const auto credentials = read("server: 'http://127.0.0.1:8001'", "token: abc");
  ASSERT_FALSE(credentials);
  EXPECT_THAT(credentials.error().message(), HasSubstr("without TLS"));
  EXPECT_TRUE(read("server: 'http://127.0.0.1:8001'", ""));
}

TEST_F(KubeconfigTest, WhatIsNotSupportedIsNamed) {
  const auto exec = read(server, "exec: {command: aws}");
  ASSERT_FALSE(exec);
  EXPECT_THAT(exec.error().message(), HasSubstr("exec is not supported"));
  EXPECT_FALSE(read(server, "username: admin, password: x"));
  EXPECT_FALSE(read(server + ", proxy-url: 'http://p'", ""));
}

TEST_F(KubeconfigTest, MissingPartsAreNamed) {
  const auto context = read(server, "", "nowhere");
  ASSERT_FALSE(context);
  EXPECT_THAT(context.error().message(), HasSubstr("contexts has no entry named \"nowhere\""));
  EXPECT_FALSE(read(server, "", "other"));
  EXPECT_FALSE(read("", ""));
  EXPECT_FALSE(read(server, "client-certificate-data: Y2VydA=="));
  EXPECT_FALSE(read(server + ", certificate-authority-data: '***'", ""));
  EXPECT_FALSE(read(server + ", certificate-authority: absent.pem", ""));
}

TEST_F(KubeconfigTest, WhatIsNoKubeconfigIsAnErrorWithTheLine) {
  const auto bad = Credentials::from_kubeconfig(tree.write("bad", "a: [1\nb: ]\n}"));
  ASSERT_FALSE(bad);
  EXPECT_THAT(bad.error().message(), HasSubstr("line"));
  for (const char* text : {"", "[]", "current-context: 3", "current-context: [a]", "- ]",
                           "current-context: x\ncontexts: [7, null, {name: x}]"}) {
    EXPECT_FALSE(Credentials::from_kubeconfig(tree.write("odd", text))) << text;
  }
  EXPECT_FALSE(Credentials::from_kubeconfig("/nonexistent/config"));
}

}  // namespace
}  // namespace ingero::k8s
