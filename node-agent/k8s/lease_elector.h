// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include "base/log.h"
#include "base/result.h"
#include "k8s/backoff.h"
#include "k8s/informer.h"
#include "k8s/transport.h"
#include "k8s/writer.h"

namespace ingero::k8s {

struct LeaseOptions {
  std::string k8s_namespace;
  std::string name = "ingero";
  std::string identity;  ///< of this agent, unlike that of any other: its pod's name
  /// A holder that did not renew for this time has lost the lease.
  std::chrono::seconds duration{15};
  std::chrono::seconds renew_period{5};
  /// The holder itself stops sooner than others take over.
  std::chrono::seconds renew_deadline{10};
  /// How often the others look, give or take a quarter. Each agent of a cluster asks the API server.
  std::chrono::seconds look_period{10};
  BackoffOptions backoff;  ///< after a failure
};

using LeaseSeams = InformerSeams;

struct LeaseStats {
  std::uint64_t renewals = 0;   ///< writes that succeeded
  std::uint64_t conflicts = 0;  ///< writes that another one came before
  std::uint64_t failures = 0;
  std::uint64_t terms = 0;  ///< times that this agent began to lead
  std::string last_error;   ///< empty: something succeeded after it
};

/// Elects one of all agents by a Lease, so that at most one leads at any time. The lease's times are
/// never compared with a clock of this node: a lease is over when it has not changed for its
/// duration while this agent looked. Time that the machine slept counts.
class LeaseElector {
 public:
  /// Called from the elector's thread when it begins or ends to lead. It may come late, while a
  /// request hangs: is_leader() is what holds.
  using ChangeHandler = std::function<void(bool leads)>;

  /// Begins. `transport` and `writer` must outlive the elector.
  static Result<std::unique_ptr<LeaseElector>> start(Transport& transport, Writer& writer,
                                                     LeaseOptions options,
                                                     ChangeHandler on_change = {},
                                                     LeaseSeams seams = {});
  ~LeaseElector();
  LeaseElector(const LeaseElector&) = delete;
  LeaseElector& operator=(const LeaseElector&) = delete;

  /// Gives the lease back, within two seconds, and joins the thread. Can be called again, but not
  /// from the handler.
  void stop();

  /// Turns false by itself when renewals do not succeed.
  bool is_leader() const;
  /// Who holds the lease, as last seen; empty: nobody, or not known.
  std::string holder() const;
  LeaseStats stats() const;

 private:
  LeaseElector(Transport& transport, Writer& writer, LeaseOptions options, ChangeHandler on_change,
               LeaseSeams seams);
  void run();
  /// Looks at the lease, or renews it, or takes it.
  Status attempt();
  Status look();
  Status write(WriteMethod method, const nlohmann::json& lease, std::uint64_t begin_ns);
  void observe(nlohmann::json lease);
  bool is_mine() const;
  bool may_take() const;
  nlohmann::json claim(std::uint64_t unix_ns) const;
  void release();
  void note_failure(const Error& error);
  void announce();
  void set_leads_until(std::uint64_t until_ns);
  std::chrono::nanoseconds time_to_next(bool succeeded);

  Transport& transport_;
  Writer& writer_;
  const LeaseOptions options_;
  const ChangeHandler on_change_;
  const LeaseSeams seams_;
  const std::string collection_;  ///< path of the namespace's leases
  std::stop_source stop_;
  std::stop_source release_stop_;

  // Of the elector's thread.
  Backoff backoff_;
  RateLimiter log_limiter_;
  /// The lease as the server has it; nullopt: not known, or no longer.
  std::optional<nlohmann::json> lease_;
  std::string renewal_;           ///< holder and renewTime, as last seen
  std::uint64_t renewal_ns_ = 0;  ///< when they were first seen
  bool announced_ = false;

  mutable std::mutex mutex_;
  std::condition_variable finished_changed_;
  bool finished_ = false;
  std::uint64_t leads_until_ns_ = 0;  ///< 0: it does not lead
  std::string holder_;
  LeaseStats stats_;
  std::thread thread_;  ///< last, so that it finds everything made
};

}  // namespace ingero::k8s
