// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "export/http_server.h"

namespace ingero::exporting {
namespace {

HttpHandlers handlers() {
  return {[]() -> Result<std::string> { return "metric 1\n"; },
          [] {
            return Readiness{true, ""};
          },
          []() -> Result<std::string> { return "{}\n"; }};
}

std::unique_ptr<HttpServer> serve(HttpHandlers with) {
  HttpOptions options;
  options.host = "127.0.0.1";
  auto server = HttpServer::create(options, std::move(with));
  if (!server) ADD_FAILURE() << server.error().message();
  return server ? std::move(*server) : nullptr;
}

/// A client that says what it likes.
class RawClient {
 public:
  explicit RawClient(std::uint16_t port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval patience{20, 0};
    setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    setsockopt(fd_.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    EXPECT_EQ(connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }

  bool say(std::string_view text) const {
    return ::send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(text.size());
  }

  /// What comes until the server closes.
  std::string hear() const {
    std::string heard;
    std::array<char, 4096> some{};
    for (ssize_t size = 0; (size = ::recv(fd_.get(), some.data(), some.size(), 0)) > 0;)
      heard.append(some.data(), static_cast<std::size_t>(size));
    return heard;
  }

 private:
  UniqueFd fd_;
};

/// Sends `piece` until the server has enough of it; how many bytes that took, at most 64 MiB.
std::size_t flood(const RawClient& client, const std::string& piece) {
  std::size_t sent = 0;
  while (sent < (std::size_t{64} << 20) && client.say(piece)) sent += piece.size();
  return sent;
}

bool is_healthy(const HttpServer& server) {
  httplib::Client client("127.0.0.1", server.port());
  const auto page = client.Get("/healthz");
  return page && page->status == 200;
}

TEST(HostileHttpClients, ARequestWithoutEndIsRefusedAfterAFewKilobytes) {
  const auto server = serve(handlers());
  ASSERT_TRUE(server);
  const std::string kilobytes(4096, 'a');
  std::string headers;
  for (int i = 0; i < 100; ++i) headers += "X-" + std::to_string(i) + ": " + "y\r\n";
  const std::vector<std::pair<std::string, std::string>> floods = {
      {"GET /", kilobytes},
      {"GET / HTTP/1.1\r\nHost: x\r\nX-Long: ", kilobytes},
      {"GET / HTTP/1.1\r\nHost: x\r\n", headers},
      {"POST /metrics HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
       "1000\r\n" + kilobytes + "\r\n"},
      {"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999999\r\n\r\n", kilobytes}};
  for (const auto& [begin, piece] : floods) {
    const RawClient client(server->port());
    ASSERT_TRUE(client.say(begin));
    EXPECT_LT(flood(client, piece), std::size_t{8} << 20) << begin;
    EXPECT_TRUE(is_healthy(*server)) << begin;
  }
}

TEST(HostileHttpClients, WhatIsTooLongOrHasABodyOrIsNoRequestIsToldSo) {
  const auto server = serve(handlers());
  ASSERT_TRUE(server);
  std::string many;
  for (int i = 0; i < 101; ++i) many += "a: b\r\n";
  const std::vector<std::pair<std::string, std::string>> requests = {
      {"GET /" + std::string(9000, 'a') + " HTTP/1.1\r\n\r\n", "HTTP/1.1 431 "},
      {"GET /healthz HTTP/1.1\r\n" + many + "\r\n", "HTTP/1.1 431 "},
      {"GET /metrics HTTP/1.1\r\nContent-Length: 1\r\n\r\nx", "HTTP/1.1 413 "},
      {"GET /metrics HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
       "HTTP/1.1 413 "},
      {"nonsense\r\n\r\n", "HTTP/1.1 400 "},
      {"DELETE /metrics HTTP/1.1\r\nConnection: close\r\n\r\n", "HTTP/1.1 404 "}};
  for (const auto& [request, begin] : requests) {
    const RawClient client(server->port());
    ASSERT_TRUE(client.say(request));
    const std::string heard = client.hear();
    EXPECT_TRUE(heard.starts_with(begin)) << request.substr(0, 40) << ": " << heard;
  }
}

TEST(HostileHttpClients, RangesAreIgnored) {
  auto with = handlers();
  with.metrics = []() -> Result<std::string> { return std::string(std::size_t{2} << 20, 'a'); };
  const auto server = serve(with);
  ASSERT_TRUE(server);
  httplib::Ranges ranges(600, {0, -1});
  httplib::Client client("127.0.0.1", server->port());
  const auto page = client.Get("/metrics", {httplib::make_range_header(ranges)});
  ASSERT_TRUE(page);
  EXPECT_EQ(page->status, 200);
  EXPECT_EQ(page->body.size(), std::size_t{2} << 20);
}

TEST(HostileHttpClients, ClientsThatSayNothingHoldNobodyUp) {
  const auto server = serve(handlers());
  ASSERT_TRUE(server);
  std::vector<std::unique_ptr<RawClient>> idle;
  for (int i = 0; i < 400; ++i) {
    idle.push_back(std::make_unique<RawClient>(server->port()));
    EXPECT_TRUE(idle.back()->say("GET /he"));
  }
  EXPECT_TRUE(is_healthy(*server));
  EXPECT_EQ(idle.front()->hear(), "") << "its place went to another one";
}

TEST(HostileHttpClients, TheTimeForARequestIsLimitedHoweverItComes) {
  HttpOptions options;
  options.host = "127.0.0.1";
  options.limits.header_timeout = std::chrono::milliseconds(200);
  const auto server = HttpServer::create(options, handlers());
  ASSERT_TRUE(server);
  const RawClient client((*server)->port());
  // A byte again and again puts nothing off: the server closes, and then no byte goes out any more.
  while (client.say("G")) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

TEST(HostileHttpClients, WhoTakesItsAnswerTooSlowlyIsGivenUp) {
  HttpOptions options;
  options.host = "127.0.0.1";
  options.limits.request_timeout = std::chrono::milliseconds(200);
  auto with = handlers();
  constexpr std::size_t kSize = std::size_t{64} << 20;
  with.metrics = []() -> Result<std::string> { return std::string(kSize, 'a'); };
  const auto server = HttpServer::create(options, with);
  ASSERT_TRUE(server);
  const RawClient client((*server)->port());
  ASSERT_TRUE(client.say("GET /metrics HTTP/1.1\r\n\r\n"));
  while (client.say("\r\n")) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_LT(client.hear().size(), kSize);
  EXPECT_TRUE(is_healthy(**server));
}

/// A page whose making can be held up.
struct HeldPage {
  std::mutex mutex;
  std::condition_variable changed;
  int begun = 0;
  bool held = true;

  Result<std::string> make() {
    std::unique_lock lock(mutex);
    const int number = ++begun;
    changed.notify_all();
    changed.wait(lock, [this] { return !held; });
    return "metric " + std::to_string(number) + "\n";
  }
  void wait_begun() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return begun > 0; });
  }
  void let_go() {
    const std::lock_guard lock(mutex);
    held = false;
    changed.notify_all();
  }
};

TEST(HostileHttpClients, ManyScrapesAtOnceAreOnePageAndHealthIsAnsweredMeanwhile) {
  HeldPage held;
  auto with = handlers();
  with.metrics = [&held] { return held.make(); };
  const auto server = serve(with);
  ASSERT_TRUE(server);
  const RawClient first(server->port());
  ASSERT_TRUE(first.say("GET /metrics HTTP/1.1\r\nConnection: close\r\n\r\n"));
  held.wait_begun();
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 30; ++i) {
    clients.push_back(std::make_unique<RawClient>(server->port()));
    ASSERT_TRUE(clients.back()->say("GET /metrics HTTP/1.1\r\nConnection: close\r\n\r\n"));
  }
  EXPECT_TRUE(is_healthy(*server));
  httplib::Client ready("127.0.0.1", server->port());
  EXPECT_TRUE(ready.Get("/readyz"));
  held.let_go();
  EXPECT_TRUE(first.hear().ends_with("metric 1\n"));
  for (const auto& client : clients)
    EXPECT_TRUE(client->hear().ends_with("metric 2\n")) << "begun after it was asked for";
}

TEST(HostileHttpClients, PagesThatNobodyTakesGiveWayToNewOnes) {
  HttpOptions options;
  options.host = "127.0.0.1";
  options.max_body_bytes = std::size_t{10} << 20;
  auto with = handlers();
  with.metrics = []() -> Result<std::string> { return std::string(std::size_t{4} << 20, 'a'); };
  const auto server = HttpServer::create(options, with);
  ASSERT_TRUE(server);
  std::vector<std::unique_ptr<RawClient>> slow;
  for (int i = 0; i < 6; ++i) {
    slow.push_back(std::make_unique<RawClient>((*server)->port()));
    ASSERT_TRUE(slow.back()->say("GET /metrics HTTP/1.1\r\n\r\n"));
    httplib::Client client("127.0.0.1", (*server)->port());
    const auto page = client.Get("/metrics");  // later than the slow one's
    ASSERT_TRUE(page);
    EXPECT_EQ(page->body.size(), std::size_t{4} << 20);
  }
  EXPECT_LT(slow.front()->hear().size(), std::size_t{4} << 20);
}

TEST(HostileHttpClients, HealthSaysWhatIsWrong) {
  auto with = handlers();
  with.liveness = [] { return Readiness{false, "the main loop has not turned for 31 s"}; };
  const auto server = serve(with);
  ASSERT_TRUE(server);
  httplib::Client client("127.0.0.1", server->port());
  const auto page = client.Get("/healthz");
  ASSERT_TRUE(page);
  EXPECT_EQ(page->status, 503);
  EXPECT_EQ(page->body, "the main loop has not turned for 31 s\n");
}

}  // namespace
}  // namespace ingero::exporting
