// SPDX-License-Identifier: Apache-2.0
// Watches, and how what goes on for long is ended: by the server, a limit or a stop.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <sys/socket.h>

#include <chrono>
#include <future>

#include "api_server_test.h"
#include "base/unique_fd.h"
#include "k8s/api_client.h"
#include "k8s/informer.h"

namespace ingero::k8s {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Time = std::chrono::steady_clock;

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
