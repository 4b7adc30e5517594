// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <httplib.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include "export/http_server.h"

namespace ingero::exporting {
namespace {

HttpHandlers handlers() {
  return {[]() -> Result<std::string> { return "metric 1\n"; },
          [] {
            return Readiness{true, ""};
          },
          []() -> Result<std::string> { return "{\"a\": 1}\n"; }};
}

std::unique_ptr<HttpServer> serve(HttpHandlers with, std::string host = "127.0.0.1") {
  auto server = HttpServer::create({std::move(host), 0}, std::move(with));
  if (!server) ADD_FAILURE() << server.error().message();
  return server ? std::move(*server) : nullptr;
}

TEST(HttpServer, ServesItsPages) {
  const auto server = serve(handlers());
  ASSERT_TRUE(server);
  ASSERT_NE(server->port(), 0);
  httplib::Client client("127.0.0.1", server->port());
  auto page = client.Get("/metrics");
  ASSERT_TRUE(page);
  EXPECT_EQ(page->status, 200);
  EXPECT_EQ(page->body, "metric 1\n");
  EXPECT_EQ(page->get_header_value("Content-Type"), "text/plain; version=0.0.4; charset=utf-8");
  page = client.Get("/healthz");
  ASSERT_TRUE(page);
  EXPECT_EQ(page->status, 200);
  page = client.Get("/debug/state");
  ASSERT_TRUE(page);
  EXPECT_EQ(page->body, "{\"a\": 1}\n");
  EXPECT_EQ(page->get_header_value("Content-Type"), "application/json");
  page = client.Get("/");
  ASSERT_TRUE(page);
  EXPECT_NE(page->body.find("href=\"/metrics\""), std::string::npos);
  page = client.Head("/metrics");
  ASSERT_TRUE(page);
  EXPECT_EQ(page->status, 200);
}

TEST(HttpServer, ReadinessTellsTheReason) {
  auto with = handlers();
  std::atomic<bool> ready{false};
  with.readiness = [&] { return Readiness{ready, ready ? "" : "waits for BPF"}; };
  const auto server = serve(with);
  ASSERT_TRUE(server);
  httplib::Client client("127.0.0.1", server->port());
  auto page = client.Get("/readyz");
  ASSERT_TRUE(page);
  EXPECT_EQ(page->status, 503);
  EXPECT_EQ(page->body, "waits for BPF\n");
  ready = true;
  page = client.Get("/readyz");
  ASSERT_TRUE(page);
  EXPECT_EQ(page->status, 200);
}

TEST(HttpServer, UnknownPagesAreNotFound) {
  const auto server = serve(handlers());
  ASSERT_TRUE(server);
  httplib::Client client("127.0.0.1", server->port());
  for (const char* path : {"/nothing", "/metrics/x", "/..//etc/passwd"}) {
    const auto page = client.Get(path);
    ASSERT_TRUE(page);
    EXPECT_EQ(page->status, 404) << path;
    EXPECT_EQ(page->get_header_value("Content-Type"), "text/plain; charset=utf-8");
  }
  const auto posted = client.Post("/metrics", "x", "text/plain");
  ASSERT_TRUE(posted);
  EXPECT_EQ(posted->status, 404);
}

TEST(HttpServer, ErrorsAndExceptionsOfHandlersAreAnswered) {
  auto with = handlers();
  with.metrics = []() -> Result<std::string> { throw std::runtime_error("boom"); };
  with.readiness = []() -> Readiness { throw 42; };
  with.debug_state = []() -> Result<std::string> {
    return fail(Error{"write debug state", "", "no memory", "", 0});
  };
  const auto server = serve(with);
  ASSERT_TRUE(server);
  httplib::Client client("127.0.0.1", server->port());
  for (const auto& [path, text] : std::vector<std::pair<std::string, std::string>>{
           {"/metrics", "boom\n"},
           {"/readyz", "unknown exception\n"},
           {"/debug/state", "write debug state: no memory\n"}}) {
    const auto page = client.Get(path);
    ASSERT_TRUE(page);
    EXPECT_EQ(page->status, 500);
    EXPECT_EQ(page->body, text);
  }
}

TEST(HttpServer, APortInUseIsAnErrorWithAHint) {
  const auto server = serve(handlers());
  ASSERT_TRUE(server);
  const auto second = HttpServer::create({"127.0.0.1", server->port()}, handlers());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, EADDRINUSE);
  EXPECT_EQ(second.error().object, "127.0.0.1:" + std::to_string(server->port()));
  EXPECT_EQ(second.error().hint, "another process listens there; choose another port");
  const auto everywhere = HttpServer::create({"", server->port()}, handlers());
  ASSERT_FALSE(everywhere);
  EXPECT_EQ(everywhere.error().code, EADDRINUSE);
}

TEST(HttpServer, AnAddressOfAnotherMachineOrNoAddressIsAnError) {
  const auto other = HttpServer::create({"192.0.2.1", 0}, handlers());
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, EADDRNOTAVAIL);
  EXPECT_FALSE(HttpServer::create({"not an address", 0}, handlers()));
}

TEST(HttpServer, ThePortIsFreeAfterStop) {
  auto server = serve(handlers());
  ASSERT_TRUE(server);
  const std::uint16_t port = server->port();
  httplib::Client client("127.0.0.1", port);
  ASSERT_TRUE(client.Get("/healthz"));
  server->stop();
  server->stop();
  EXPECT_FALSE(client.Get("/healthz"));
  EXPECT_TRUE(HttpServer::create({"127.0.0.1", port}, handlers()));
}

TEST(HttpServer, StopsAtOnceAfterStart) {
  for (int i = 0; i < 50; ++i) {
    const auto server = serve(handlers());
    ASSERT_TRUE(server);
  }
}

TEST(HttpServer, StopDoesNotWaitLongForIdleConnections) {
  auto server = serve(handlers());
  ASSERT_TRUE(server);
  httplib::Client client("127.0.0.1", server->port());
  client.set_keep_alive(true);
  ASSERT_TRUE(client.Get("/healthz"));
  const auto begin = std::chrono::steady_clock::now();
  server->stop();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

TEST(HttpServer, ListensOnIpv6) {
  auto server = HttpServer::create({"::1", 0}, handlers());
  if (!server) GTEST_SKIP() << "no IPv6 here: " << server.error().message();
  httplib::Client client("::1", (*server)->port());
  const auto page = client.Get("/healthz");
  ASSERT_TRUE(page);
  EXPECT_EQ(page->status, 200);
  httplib::Client other("127.0.0.1", (*server)->port());
  EXPECT_FALSE(other.Get("/healthz"));
}

TEST(HttpServer, AnEmptyHostIsAllInterfaces) {
  const auto server = serve(handlers(), "");
  ASSERT_TRUE(server);
  httplib::Client client("127.0.0.1", server->port());
  EXPECT_TRUE(client.Get("/healthz"));
  if (HttpServer::create({"::1", 0}, handlers())) {
    httplib::Client six("::1", server->port());
    EXPECT_TRUE(six.Get("/healthz"));
  }
}

TEST(HttpServer, ManyClientsAtOnce) {
  const auto server = serve(handlers());
  ASSERT_TRUE(server);
  std::atomic<int> served{0};
  std::vector<std::thread> clients;
  for (int i = 0; i < 16; ++i) {
    clients.emplace_back([&] {
      httplib::Client client("127.0.0.1", server->port());
      for (int j = 0; j < 10; ++j) {
        if (const auto page = client.Get("/metrics"); page && page->status == 200) ++served;
      }
    });
  }
  for (auto& client : clients) client.join();
  EXPECT_EQ(served, 160);
}

TEST(HttpServer, CompressesWithGzipAndNeverWithSlowBrotli) {
  auto with = handlers();
  with.metrics = []() -> Result<std::string> { return std::string(std::size_t{1} << 20, 'a'); };
  const auto server = serve(with);
  ASSERT_TRUE(server);
  httplib::Client client("127.0.0.1", server->port());
  client.set_decompress(false);
  auto page = client.Get("/metrics", httplib::Headers{{"Accept-Encoding", "br, gzip"}});
  ASSERT_TRUE(page);
  EXPECT_EQ(page->get_header_value("Content-Encoding"), "gzip");
  EXPECT_LT(page->body.size(), 10000U);
  page = client.Get("/metrics", httplib::Headers{{"Accept-Encoding", "br"}});
  ASSERT_TRUE(page);
  EXPECT_EQ(page->get_header_value("Content-Encoding"), "");
}

}  // namespace
}  // namespace ingero::exporting
