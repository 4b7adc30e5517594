// SPDX-License-Identifier: Apache-2.0
#include "export/http_page.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <exception>
#include <utility>

#include "export/gzip.h"

namespace ingero::exporting {
namespace {

using namespace std::chrono_literals;

/// Somebody who asks without end gets half a processor at most, and leaves the locks that a page is
/// made under to others as long as he has them.
constexpr std::chrono::steady_clock::duration kLongestRest = 500ms;

HttpBodyPtr pack(const HttpBody& plain) {
  auto text = gzip(plain.text);
  if (!text) return std::make_shared<const HttpBody>(plain);
  return std::make_shared<const HttpBody>(
      HttpBody{plain.status, plain.content_type, std::move(*text), true});
}

}  // namespace

HttpPage::HttpPage(boost::asio::io_context& io, boost::asio::thread_pool& pool, Make make)
    : io_(io), pool_(pool), make_(std::move(make)), rest_(io) {}

void HttpPage::ask(std::shared_ptr<HttpConnection> connection, bool gzip) {
  waiting_.push_back({std::move(connection), gzip});
  if (!busy_) begin();
}

void HttpPage::forget(const std::shared_ptr<HttpConnection>& connection) {
  const auto is = [&](const Asker& asker) { return asker.connection == connection; };
  std::erase_if(waiting_, is);
  std::erase_if(served_, is);
}

void HttpPage::begin() {
  busy_ = true;
  served_ = std::exchange(waiting_, {});
  const auto packs = [](const Asker& asker) { return asker.gzip; };
  const bool packed = std::any_of(served_.begin(), served_.end(), packs);
  const bool plain = !std::all_of(served_.begin(), served_.end(), packs);
  boost::asio::post(pool_, [this, make = make_, plain, packed] {
    boost::asio::post(io_, [this, rendering = render(make, plain, packed)] { finish(rendering); });
  });
}

HttpPage::Rendering HttpPage::render(const Make& make, bool plain, bool packed) {
  const auto begun = std::chrono::steady_clock::now();
  Rendering rendering;
  try {
    auto body = std::make_shared<const HttpBody>(make());
    if (packed) rendering.packed = pack(*body);
    if (plain) rendering.plain = std::move(body);
  } catch (const std::exception& problem) {
    rendering.packed = rendering.plain = std::make_shared<const HttpBody>(
        HttpBody{500, "text/plain; charset=utf-8", problem.what()});
  }
  rendering.took = std::chrono::steady_clock::now() - begun;
  return rendering;
}

void HttpPage::finish(const Rendering& rendering) {
  for (const Asker& asker : std::exchange(served_, {}))
    asker.connection->answer(asker.gzip ? rendering.packed : rendering.plain);
  rest_.expires_after(std::min(rendering.took, kLongestRest));
  rest_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    busy_ = false;
    if (!waiting_.empty()) begin();
  });
}

}  // namespace ingero::exporting
