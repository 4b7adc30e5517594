// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "discover/mapping_watcher.h"

namespace ingero::app {

/// Decides which processes are looked at, and when again, from the kernel's mmap events. A process that maps
/// without pause is looked at no more often than another. On the io_context's thread.
class MappingFollower {
 public:
  struct Look {
    bool incomplete = false;             ///< a mapping changed while it was looked at
    std::set<std::string> traced_paths;  ///< of files that are traced, as the process sees them
  };
  enum class Outcome { seen, gone, postponed };
  using Seen = std::function<void(Outcome, const Look&)>;
  struct Handlers {
    std::function<void()> scan_host;
    /// Scans a process, whose mappings were noticed at that time (CLOCK_MONOTONIC), and tells what it saw.
    std::function<void(std::uint32_t pid, std::uint64_t noticed_ns, Seen)> scan_process;
  };

  /// Takes note of mappings from here on.
  MappingFollower(boost::asio::io_context& io, Handlers handlers);

  /// From here on the handlers are called.
  void start();

  /// Scans a process now, and soon again while its mappings move.
  void scan(std::uint32_t pid, std::uint64_t noticed_ns);

  /// False: nothing tells of new mappings, so the host has to be scanned often.
  bool has_events() const { return watcher_.has_value(); }
  /// How new mappings are noticed: "mmap events" or "a scan every second: REASON".
  const std::string& text() const { return text_; }

 private:
  using Hint = std::pair<std::size_t, std::string>;  // hash and path
  /// A process that is being looked at.
  struct Watched {
    Watched(boost::asio::io_context& io, std::uint64_t time_ns) : timer(io), first_ns(time_ns) {}
    boost::asio::steady_timer timer;
    std::uint64_t first_ns;   ///< of its first new mapping
    std::vector<Hint> hints;  ///< looked at in this round
    std::vector<Hint> fresh;  ///< came since its last look began
    bool anew = false;        ///< another round is due
    std::uint64_t again_ns = 0;
    std::size_t look = 0;
    std::size_t attempts = 0;  ///< further looks, while its mappings move
    std::chrono::milliseconds back_off{0};
  };
  using Table = std::map<std::uint32_t, std::shared_ptr<Watched>>;

  void await_many();
  void take_again();
  void take_events();
  void note(const discover::MappingHint& hint);
  std::shared_ptr<Watched> watch(std::uint32_t pid, std::uint64_t time_ns);
  void look(std::uint32_t pid, const std::shared_ptr<Watched>& watched);
  void looked(std::uint32_t pid, const std::shared_ptr<Watched>& watched, Outcome outcome,
              const Look& seen);
  void look_after(std::chrono::milliseconds time, std::uint32_t pid,
                  const std::shared_ptr<Watched>& watched);
  void forget_dull(const Watched& watched, const Look& seen);

  boost::asio::io_context& io_;
  Handlers handlers_;
  std::optional<discover::MappingWatcher> watcher_;
  std::string text_;
  boost::asio::posix::stream_descriptor descriptor_;
  boost::asio::steady_timer take_timer_;
  bool more_coming_ = false;  ///< the rest of a batch
  Table watched_;
  std::unordered_set<std::size_t> dull_hints_;  ///< mappings that were looked at: of no interest
};

}  // namespace ingero::app
