// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "k8s/backoff.h"
#include "k8s/writer.h"

namespace ingero::k8s {

/// The object that an event is about.
struct ObjectReference {
  std::string api_version;  ///< such as "ingero.io/v1alpha1"
  std::string kind;
  std::string k8s_namespace;  ///< empty: the object belongs to the cluster
  std::string name;
  std::string uid;  ///< may be empty
};

enum class EventType { normal, warning };

struct Event {
  ObjectReference object;
  EventType type = EventType::warning;
  std::string reason;   ///< one word, such as "ConfigRejected"
  std::string message;  ///< any text; cut to what the API server takes
};

struct EventRecorderOptions {
  std::string node;
  std::string instance;  ///< the agent's pod
  std::size_t max_queue = 256;
  std::chrono::seconds repeat_interval{600};  ///< of one event with the same words
  BackoffOptions backoff{std::chrono::milliseconds(500), std::chrono::seconds(30)};
};

struct EventStats {
  std::uint64_t sent = 0;
  std::uint64_t repeated = 0;  ///< not sent, as the same was within the interval
  std::uint64_t dropped = 0;   ///< the queue was full
  std::uint64_t refused = 0;   ///< by the API server
  std::string last_error;      ///< empty: one was sent after it
};

/// Tells users by Kubernetes Events what happened to their objects. Thread safe. A server that is
/// away is waited for, while the queue fills; what is queued at the stop is lost.
class EventRecorder {
 public:
  /// `writer` must outlive the recorder.
  static Result<std::unique_ptr<EventRecorder>> start(
      Writer& writer, EventRecorderOptions options,
      const ClockSource& clock = system_clock_source());
  ~EventRecorder();
  EventRecorder(const EventRecorder&) = delete;
  EventRecorder& operator=(const EventRecorder&) = delete;

  /// Never waits for the API server.
  void record(const Event& event);
  void stop();
  EventStats stats() const;

 private:
  EventRecorder(Writer& writer, EventRecorderOptions options, const ClockSource& clock);
  void run();
  nlohmann::json make_object(const Event& event) const;

  Writer& writer_;
  const EventRecorderOptions options_;
  const ClockSource& clock_;
  RateLimiter repeats_;
  std::stop_source stop_;

  mutable std::mutex mutex_;
  std::condition_variable_any wake_;
  std::deque<nlohmann::json> queue_;
  EventStats stats_;
  std::thread thread_;  ///< last, so that it finds everything made
};

}  // namespace ingero::k8s
