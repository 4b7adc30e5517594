// SPDX-License-Identifier: Apache-2.0
#include "app/settings_source.h"

#include <fmt/format.h>
#include <unistd.h>

#include "base/text_file.h"

namespace ingero::app {
namespace {

using namespace std::chrono_literals;

// A writer may need several writes; what is read in between is not to be believed.
constexpr auto kSettleTime = 100ms;
constexpr std::size_t kMaxBytes = 1 << 20;

std::string version_of(const std::string& text) {
  return fmt::format("{:016x}", std::hash<std::string>{}(text));
}

}  // namespace

ConfigFileSource::ConfigFileSource(boost::asio::io_context& io, LiveConfig& settings,
                                   std::string path)
    : settings_(settings), path_(std::move(path)), descriptor_(io), timer_(io) {}

Status ConfigFileSource::start() {
  auto watch = config::ConfigFileWatch::create(path_);
  if (!watch) return fail(watch.error());
  watch_.emplace(std::move(*watch));
  descriptor_.assign(::dup(watch_->descriptor()));
  wait_for_change();
  read();  // what changed between the first reading and the watch
  return {};
}

void ConfigFileSource::wait_for_change() {
  descriptor_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                         [this](const boost::system::error_code& error) {
                           if (error) return;
                           if (watch_->take()) read_soon();
                           wait_for_change();
                         });
}

void ConfigFileSource::read_soon() {
  timer_.expires_after(kSettleTime);
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) read();
  });
}

void ConfigFileSource::read() {
  const auto text = read_text_file(path_, kMaxBytes, "read configuration");
  if (!text) {
    last_text_.clear();
    settings_.refuse(path_, text.error().message());
    return;
  }
  if (*text == last_text_) return;
  last_text_ = *text;
  static_cast<void>(settings_.take(*text, path_, version_of(*text)));
}

}  // namespace ingero::app
