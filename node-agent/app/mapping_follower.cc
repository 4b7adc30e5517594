// SPDX-License-Identifier: Apache-2.0
#include "app/mapping_follower.h"

#include <signal.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <array>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <map>
#include <memory>

namespace ingero::app {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kMaxDullHints = 65536;
constexpr std::size_t kManyProcesses = 64;
constexpr std::array kFurtherLooks = {10ms, 50ms};
constexpr int kAttempts = 3;

std::size_t hint_hash(const discover::MappingHint& hint) {
  return std::hash<std::string>{}(hint.path) ^ (hint.device_inode * 0x9e3779b97f4a7c15ULL);
}

}  // namespace

MappingFollower::MappingFollower(boost::asio::io_context& io, Handlers handlers)
    : io_(io), handlers_(std::move(handlers)), descriptor_(io) {
  auto watcher = discover::MappingWatcher::create();
  if (watcher) {
    watcher_.emplace(std::move(*watcher));
    text_ = "mmap events";
    return;
  }
  text_ = "a scan every second: " + watcher.error().message();
  spdlog::warn("new mappings are noticed by {}", text_);
}

void MappingFollower::start() {
  if (!watcher_) return;
  descriptor_.assign(::dup(watcher_->descriptor()));
  await_events();
}

void MappingFollower::await_events() {
  descriptor_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                         [this](const boost::system::error_code& error) {
                           if (error) return;
                           take_events();
                           await_events();
                         });
}

void MappingFollower::take_events() {
  bool lost = false;
  const auto hints = watcher_->take(lost);
  const auto own_pid = static_cast<std::uint32_t>(::getpid());
  std::map<std::uint32_t, HintedProcess> wanted;
  for (const discover::MappingHint& hint : hints) {
    const std::size_t hash = hint_hash(hint);
    // The agent maps a page of each library itself, to ask the kernel which file it is.
    if (hint.pid == own_pid || dull_hints_.contains(hash)) continue;
    auto [it, added] = wanted.try_emplace(hint.pid, HintedProcess{hint.time_ns, {}});
    it->second.hints.emplace_back(hash, hint.path);
  }
  if (lost || wanted.size() > kManyProcesses) handlers_.scan_host();
  for (auto& [pid, process] : wanted) {
    scan(pid, process.first_ns);
    look_again(pid, std::move(process), 0);
  }
}

/// The loader is at work when the first scan runs, and the iterator can pass over a mapping that changes
/// under it. What is not of interest at the last look either is not looked at again.
void MappingFollower::look_again(std::uint32_t pid, HintedProcess process, std::size_t look) {
  auto timer = std::make_shared<boost::asio::steady_timer>(io_, kFurtherLooks[look]);
  timer->async_wait([this, timer, pid, look,
                     process = std::move(process)](const boost::system::error_code& error) mutable {
    if (error || ::kill(static_cast<pid_t>(pid), 0) != 0) return;
    const auto seen = handlers_.scan_process(pid, process.first_ns);
    if (!seen) return;
    const bool last = look + 1 == kFurtherLooks.size();
    if (dull_hints_.size() > kMaxDullHints) dull_hints_.clear();
    for (const auto& [hash, path] : process.hints) {
      if (last && !seen->incomplete && !seen->traced_paths.contains(path)) dull_hints_.insert(hash);
    }
    if (!last) look_again(pid, std::move(process), look + 1);
  });
}

void MappingFollower::scan(std::uint32_t pid, std::uint64_t noticed_ns) {
  scan(pid, noticed_ns, kAttempts);
}

/// The loader moves mappings about while it works: what was there a moment ago may have other addresses.
void MappingFollower::scan(std::uint32_t pid, std::uint64_t noticed_ns, int attempts) {
  const auto seen = handlers_.scan_process(pid, noticed_ns);
  if (!seen || !seen->incomplete || attempts == 0) return;
  auto timer = std::make_shared<boost::asio::steady_timer>(io_, 5ms);
  timer->async_wait(
      [this, timer, pid, noticed_ns, attempts](const boost::system::error_code& error) {
        if (!error) scan(pid, noticed_ns, attempts - 1);
      });
}

}  // namespace ingero::app
