// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "discover/mapping_watcher.h"

namespace ingero::app {

/// Decides which processes are looked at, and when again, from the kernel's mmap events. On the
/// io_context's thread.
class MappingFollower {
 public:
  struct Look {
    bool incomplete = false;             ///< a mapping changed while it was looked at
    std::set<std::string> traced_paths;  ///< of files that are traced, as the process sees them
  };
  struct Handlers {
    std::function<void()> scan_host;
    /// Scans a process, whose mappings were noticed at that time (CLOCK_MONOTONIC); nullopt: it is gone.
    std::function<std::optional<Look>(std::uint32_t pid, std::uint64_t noticed_ns)> scan_process;
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
  struct HintedProcess {
    std::uint64_t first_ns;                                  ///< of its first new mapping
    std::vector<std::pair<std::size_t, std::string>> hints;  ///< hash and path
  };
  void await_events();
  void take_events();
  void look_again(std::uint32_t pid, HintedProcess process, std::size_t look);
  void scan(std::uint32_t pid, std::uint64_t noticed_ns, int attempts);

  boost::asio::io_context& io_;
  Handlers handlers_;
  std::optional<discover::MappingWatcher> watcher_;
  std::string text_;
  boost::asio::posix::stream_descriptor descriptor_;
  std::unordered_set<std::size_t> dull_hints_;  ///< mappings that were looked at: of no interest
};

}  // namespace ingero::app
