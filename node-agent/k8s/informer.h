// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "k8s/api_object.h"
#include "k8s/backoff.h"
#include "k8s/transport.h"

namespace ingero::k8s {

struct InformerOptions {
  std::string path;            ///< such as "/api/v1/pods"
  std::string field_selector;  ///< such as "spec.nodeName=node-1"; empty: all
  std::string label_selector;
  std::size_t page_size = 100;  ///< objects per page of a list; bounds its memory
  /// The server ends a watch after this time up to twice of it, drawn anew for each.
  std::chrono::seconds watch_timeout{300};
  /// A watch that lasted this long was healthy: what ends it is answered at once.
  std::chrono::seconds healthy_watch{5};
  BackoffOptions backoff;
  DroppedFields dropped_fields;
};

enum class ChangeType { added, modified, deleted };

/// Called from the informer's thread, one at a time, in the order of the server's events. What they
/// throw ends the attempt, and the objects are listed again.
struct InformerHandlers {
  /// All objects there are: what was known before and is not among them is gone.
  std::function<void(std::vector<nlohmann::json> objects)> on_snapshot;
  /// One change since. A deleted object comes in its last state.
  std::function<void(ChangeType type, nlohmann::json object)> on_change;
};

/// The parts of the outside world besides the transport.
struct InformerSeams {
  const ClockSource* clock = &system_clock_source();
  RandomSource random = draw_random;
  /// Waits for the time or the stop request, whichever comes first.
  std::function<void(std::chrono::nanoseconds time, const std::stop_token& stop)> wait;
};

/// Counters since the start.
struct InformerStats {
  std::uint64_t lists = 0;      ///< that succeeded
  std::uint64_t watches = 0;    ///< that were begun
  std::uint64_t changes = 0;    ///< that were handed on
  std::uint64_t bookmarks = 0;  ///< without a change
  std::uint64_t expired = 0;    ///< answers and events that said 410
  std::uint64_t malformed = 0;  ///< answers and events that could not be read
  std::uint64_t failures = 0;   ///< attempts that ended in an error, all of the above included
  bool synced = false;          ///< there was a list, so the handlers know the objects
  std::string last_error;       ///< empty: an answer or event came after it
};

/// Keeps its handlers informed about the objects of one kind: lists them, watches from there on,
/// resumes a watch that ended where it ended, and lists again when the server no longer knows that
/// place. Lives through any outage, with a growing time between attempts.
class Informer {
 public:
  /// Begins. `transport` must outlive the informer.
  static Result<std::unique_ptr<Informer>> start(Transport& transport, InformerOptions options,
                                                 InformerHandlers handlers,
                                                 InformerSeams seams = {});
  ~Informer();
  Informer(const Informer&) = delete;
  Informer& operator=(const Informer&) = delete;

  /// Interrupts what is waited for and joins the thread; no handler is called afterwards. Can be
  /// called again, but not from a handler.
  void stop();

  InformerStats stats() const;

 private:
  Informer(Transport& transport, InformerOptions options, InformerHandlers handlers,
           InformerSeams seams);
  void run();
  /// A list, if one is due, and a watch. True: the next attempt need not wait.
  bool attempt();
  Status list();
  Status watch();
  Status handle_line(std::string_view line);
  /// What the next attempt must do differently.
  void learn_from(const Error& error);
  void note_failure(const Error& error);
  std::string list_path(const std::string& next) const;
  std::string watch_path(std::chrono::seconds timeout) const;
  template <typename Change>
  void update_stats(Change&& change);

  Transport& transport_;
  const InformerOptions options_;
  const InformerHandlers handlers_;
  const InformerSeams seams_;
  std::stop_source stop_;

  // Of the informer's thread.
  Backoff backoff_;
  RateLimiter log_limiter_;
  bool must_list_ = true;
  /// Where the next watch begins, and what a list must not be older than. "0": any state that the
  /// server has at hand, which spares etcd; empty: the newest, asked of etcd.
  std::string version_ = "0";

  mutable std::mutex mutex_;
  InformerStats stats_;
  std::thread thread_;  ///< last, so that it finds everything made
};

/// Escapes text for a query.
std::string encode_query(std::string_view text);

}  // namespace ingero::k8s
