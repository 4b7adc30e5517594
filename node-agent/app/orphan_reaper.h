// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <thread>

#include "base/log.h"
#include "base/result.h"
#include "k8s/transport.h"
#include "k8s/writer.h"

namespace ingero::app {

struct OrphanReaperOptions {
  /// How long a report is let alone after it was first seen.
  std::chrono::milliseconds grace{10'000};
  /// Between two looks at one node.
  std::chrono::milliseconds interval{std::chrono::minutes(5)};
  /// Between two looks: one agent asks for the nodes of the whole cluster.
  std::chrono::milliseconds pace{1000};
};

/// Deletes reports of nodes that are no longer in the cluster. Thread safe; a thread of its own asks.
class OrphanReaper {
 public:
  /// Both must outlive the reaper.
  static Result<std::unique_ptr<OrphanReaper>> start(k8s::Transport& transport, k8s::Writer& writer,
                                                     OrphanReaperOptions options = {});
  ~OrphanReaper();
  OrphanReaper(const OrphanReaper&) = delete;
  OrphanReaper& operator=(const OrphanReaper&) = delete;

  /// The names of all reports that there are.
  void set_reports(const std::set<std::string>& names);

 private:
  using Time = std::chrono::steady_clock;

  OrphanReaper(k8s::Transport& transport, k8s::Writer& writer, OrphanReaperOptions options);
  void run();
  std::optional<std::string> take_due();
  void look_at(const std::string& name);

  k8s::Transport& transport_;
  k8s::Writer& writer_;
  const OrphanReaperOptions options_;
  RateLimiter log_limiter_{std::chrono::minutes(1)};
  std::stop_source stop_;
  std::mutex mutex_;
  std::map<std::string, Time::time_point> due_;
  std::thread thread_;  ///< last, so that it finds everything made
};

}  // namespace ingero::app
