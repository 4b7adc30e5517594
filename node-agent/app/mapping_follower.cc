// SPDX-License-Identifier: Apache-2.0
#include "app/mapping_follower.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/post.hpp>

namespace ingero::app {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kMaxDullHints = 65536;
constexpr std::size_t kMaxWatched = 4096;
constexpr std::size_t kMaxHints =
    128;  // of one process; without the others it may be looked at once more
constexpr std::size_t kRecordsPerTurn = 2048;
/// From a mapping to the probes 50 ms may pass. Of this they wait here, so that no mapping has to wake the agent.
constexpr auto kBetweenTakes = 20ms;
constexpr std::size_t kManyProcesses = 64;
/// The loader is at work when the first scan runs, and the iterator can pass over a mapping that changes
/// under it. What is not of interest at the last look either is not looked at again.
constexpr std::array kFurtherLooks = {10ms, 40ms};
constexpr auto kBetweenRounds = 50ms;
constexpr std::size_t kAttempts = 3;
constexpr auto kFirstBackOff = 250ms, kLongestBackOff = 8000ms;

std::size_t hint_hash(const discover::MappingHint& hint) {
  return std::hash<std::string>{}(hint.path) ^ (hint.device_inode * 0x9e3779b97f4a7c15ULL);
}

}  // namespace

MappingFollower::MappingFollower(boost::asio::io_context& io, Handlers handlers)
    : io_(io), handlers_(std::move(handlers)), descriptor_(io), take_timer_(io) {
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
  await_many();
  take_again();
}

void MappingFollower::await_many() {
  descriptor_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                         [this](const boost::system::error_code& error) {
                           if (error) return;
                           take_events();
                           await_many();
                         });
}

void MappingFollower::take_again() {
  take_timer_.expires_after(kBetweenTakes);
  take_timer_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    take_events();
    take_again();
  });
}

void MappingFollower::take_events() {
  const auto batch = watcher_->take(kRecordsPerTurn);
  const std::size_t before = watched_.size();
  for (const discover::MappingHint& hint : batch.hints) note(hint);
  const bool crowded = watched_.size() > before + kManyProcesses || watched_.size() >= kMaxWatched;
  if (batch.lost || crowded) handlers_.scan_host();
  if (!batch.more || std::exchange(more_coming_, true)) return;
  boost::asio::post(io_, [this] {
    more_coming_ = false;
    take_events();
  });
}

void MappingFollower::note(const discover::MappingHint& hint) {
  const std::size_t hash = hint_hash(hint);
  // The agent maps a page of each library itself, to ask the kernel which file it is.
  if (hint.pid == static_cast<std::uint32_t>(::getpid()) || dull_hints_.contains(hash)) return;
  const auto watched = watch(hint.pid, hint.time_ns);
  if (!watched) return;
  const auto is_same = [&](const Hint& known) { return known.first == hash; };
  const bool known = std::any_of(watched->fresh.begin(), watched->fresh.end(), is_same);
  if (!known && watched->fresh.size() < kMaxHints) watched->fresh.emplace_back(hash, hint.path);
}

void MappingFollower::scan(std::uint32_t pid, std::uint64_t noticed_ns) { watch(pid, noticed_ns); }

/// Null: there is no room for another one. The scan of the host sees it.
std::shared_ptr<MappingFollower::Watched> MappingFollower::watch(std::uint32_t pid,
                                                                 std::uint64_t time_ns) {
  const auto known = watched_.find(pid);
  if (known != watched_.end()) {
    if (!known->second->anew) known->second->again_ns = time_ns;
    known->second->anew = true;
    return known->second;
  }
  if (watched_.size() >= kMaxWatched) return nullptr;
  const auto watched = std::make_shared<Watched>(io_, time_ns);
  watched_.emplace(pid, watched);
  // Not now: hints of the same turn belong to the same look.
  boost::asio::post(io_, [this, pid, watched] { look(pid, watched); });
  return watched;
}

void MappingFollower::look(std::uint32_t pid, const std::shared_ptr<Watched>& watched) {
  if (watched->look == 0) std::swap(watched->hints, watched->fresh);
  handlers_.scan_process(pid, watched->first_ns,
                         [this, pid, watched](Outcome outcome, const Look& seen) {
                           looked(pid, watched, outcome, seen);
                         });
}

void MappingFollower::looked(std::uint32_t pid, const std::shared_ptr<Watched>& watched,
                             Outcome outcome, const Look& seen) {
  if (outcome == Outcome::gone) {
    watched_.erase(pid);
    return;
  }
  if (outcome == Outcome::postponed) {
    watched->back_off = std::clamp<std::chrono::milliseconds>(watched->back_off * 2, kFirstBackOff,
                                                              kLongestBackOff);
    return look_after(watched->back_off, pid, watched);
  }
  watched->back_off = 0ms;
  if (watched->look < kFurtherLooks.size())
    return look_after(kFurtherLooks[watched->look++], pid, watched);
  if (seen.incomplete && watched->attempts < kAttempts) {
    ++watched->attempts;
    return look_after(kBetweenRounds, pid, watched);
  }
  forget_dull(*watched, seen);
  if (!watched->anew) {
    watched_.erase(pid);
    return;
  }
  watched->anew = false;
  watched->first_ns = watched->again_ns;
  watched->hints.clear();
  watched->look = watched->attempts = 0;
  look_after(kBetweenRounds, pid, watched);
}

void MappingFollower::look_after(std::chrono::milliseconds time, std::uint32_t pid,
                                 const std::shared_ptr<Watched>& watched) {
  watched->timer.expires_after(time);
  watched->timer.async_wait([this, pid, watched](const boost::system::error_code& error) {
    if (!error) look(pid, watched);
  });
}

void MappingFollower::forget_dull(const Watched& watched, const Look& seen) {
  if (seen.incomplete) return;
  if (dull_hints_.size() > kMaxDullHints) dull_hints_.clear();
  for (const auto& [hash, path] : watched.hints)
    if (!seen.traced_paths.contains(path)) dull_hints_.insert(hash);
}

}  // namespace ingero::app
