// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include "base/result.h"
#include "k8s/backoff.h"
#include "k8s/writer.h"

namespace ingero::k8s {

/// An object, or its status, and where it is.
struct AppliedObject {
  std::string path;  ///< such as "/apis/ingero.io/v1alpha1/gputracenodes/n/status"
  nlohmann::json object;
};

struct ObjectApplierOptions {
  std::chrono::milliseconds interval{1000};  ///< between two writes of one path
  BackoffOptions backoff{std::chrono::milliseconds(500), std::chrono::seconds(30)};
  /// Asked, from the applier's thread, before the first write of a path, and when the API server does
  /// not know it: what to apply before, such as the object of a status. nullopt: nothing; a path that
  /// the server does not know is given up then. An error: it is asked again later.
  std::function<Result<std::optional<AppliedObject>>(const std::string& path, std::stop_token stop)>
      prerequisite;
};

struct ObjectApplierStats {
  std::uint64_t writes = 0;  ///< that succeeded
  std::uint64_t failures = 0;
  std::string last_error;  ///< empty: a write succeeded after it
};

/// Keeps objects in the API server as they were told last, by server-side apply. States that come
/// faster than the interval are skipped, and so are those that change nothing. Thread safe.
class ObjectApplier {
 public:
  /// `writer` must outlive the applier.
  static Result<std::unique_ptr<ObjectApplier>> start(Writer& writer, ObjectApplierOptions options);
  ~ObjectApplier();
  ObjectApplier(const ObjectApplier&) = delete;
  ObjectApplier& operator=(const ObjectApplier&) = delete;

  /// Never waits for the API server.
  void apply(const std::string& path, nlohmann::json object);
  /// Stops caring for a path; nothing is deleted. It is written again at the next apply().
  void forget(const std::string& path);
  /// Forgets all paths.
  void clear();
  void stop();
  ObjectApplierStats stats() const;

 private:
  using Time = std::chrono::steady_clock;
  struct Entry {
    nlohmann::json wanted;
    std::uint64_t generation = 0;  ///< of `wanted`; 0: never told
    std::uint64_t written = 0;     ///< generation that the API server has
    Time::time_point due;
    std::optional<Backoff> backoff;  ///< set while writes fail
  };
  using Entries = std::map<std::string, Entry>;

  ObjectApplier(Writer& writer, ObjectApplierOptions options);
  void run();
  Entries::iterator find_next();
  /// These write without the lock.
  Status write(const AppliedObject& object, std::uint64_t generation, bool is_first);
  Status send(const AppliedObject& object);
  /// Whether there was something to be made.
  Result<bool> make_prerequisite(const std::string& path);
  void settle(const std::string& path, std::uint64_t generation, const Status& written);

  Writer& writer_;
  const ObjectApplierOptions options_;
  std::stop_source stop_;

  mutable std::mutex mutex_;
  std::condition_variable_any wake_;
  bool changed_ = false;
  std::uint64_t last_generation_ = 0;
  Entries entries_;
  ObjectApplierStats stats_;
  std::thread thread_;  ///< last, so that it finds everything made
};

}  // namespace ingero::k8s
