// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "app/call_stream.h"
#include "app/host_scanner.h"
#include "app/library_registry.h"
#include "app/mapping_follower.h"
#include "app/socket_owners.h"
#include "app/workloads.h"
#include "attach/bpf_object.h"
#include "attach/library_probes.h"
#include "attribute/cgroup_hierarchy.h"
#include "attribute/container_resolver.h"
#include "base/clock.h"
#include "base/deadline_worker.h"
#include "base/share_budget.h"
#include "collect/call_collector.h"
#include "collect/event_reader.h"
#include "config/config.h"
#include "discover/library_finder.h"
#include "discover/mapping_scanner.h"

namespace ingero::app {

struct AgentOptions {
  config::Config config;
  std::optional<std::uint32_t> only_pid;
  /// set_cluster() will tell what the cluster says; nothing is decided before.
  bool in_cluster = false;
  /// Containers that have ended leave the series only: what they have counted is told at the end.
  bool keep_ended = false;
  std::string only_cgroup;  ///< path, or the beginning of a container id; empty: all
  /// Who gets streamed events; those without a handler are not streamed. Selection and owners are the
  /// agent's own.
  StreamOptions stream;
  bool stream_everything = false;  ///< from the start; else see record_pods()
  /// What is counted of some container, or who it is, has changed. From any thread.
  std::function<void()> on_workloads_changed;
};

/// The data path, wired: discover -> attach -> (kernel counts) -> collect -> attribute. Everything but
/// snapshot() and label_of() belongs to the thread that runs the io_context.
class Agent {
 public:
  /// Finds out what works here, loads the programs, scans the host once and attaches.
  static Result<std::unique_ptr<Agent>> create(boost::asio::io_context& io, AgentOptions options);
  ~Agent();  ///< perf probes, which go slowly, are left to a child process

  /// Whether this host can do what the settings force. An error: create() would refuse it too.
  static Status can_run(const config::Config& config);

  /// From here on new mappings, exits and calls are handled as they come.
  void start();

  /// The state of now. From any thread.
  std::shared_ptr<const model::Snapshot> snapshot(
      collect::CallRows rows = collect::CallRows::by_cgroup);

  /// The state of now without calls, errors and communicators, which costs little. From any thread.
  std::shared_ptr<const model::Snapshot> overview();

  /// Whether any call was counted since the start. From any thread.
  bool has_counted();

  /// The labels of a cgroup's series. From any thread.
  exporting::Workload workload_of(model::CgroupId cgroup) const;

  /// What the cluster says now; decides anew. From any thread.
  void set_cluster(std::shared_ptr<const ClusterView> view);

  /// Streams the calls of these pods, by uid, as far as a policy asks for it, and what the host does
  /// beside them; none: nothing. On the io_context's thread. An error: nothing is streamed.
  Status record_pods(std::set<std::string> uids);

  /// Takes the live settings over. On the io_context's thread.
  void apply_config(const config::Config& config);

  /// Containers of this node that use a GPU library. From any thread.
  std::vector<CoveredContainer> containers() const;

  const attribute::CgroupMount& cgroup_mount() const { return resolver_.mount(); }

  const Clock& clock() const { return clock_; }
  const model::BpfHandles& handles() const { return bpf_->handles(); }
  model::AttachMethod method() const { return method_; }
  const std::vector<attach::MethodTrial>& trials() const { return trials_; }
  /// How new mappings are noticed.
  const std::string& watch_text() const { return mappings_->text(); }
  /// How communicators of each library look, container by container. From any thread.
  std::vector<collect::LayoutState> layouts() const { return layouts_->states(); }
  /// Hands over what the call stream holds now; false: the handler had enough before its end.
  bool drain_calls();

 private:
  Agent(boost::asio::io_context& io, AgentOptions options, attribute::CgroupMount mount);

  Status load();
  Status open_rings();
  void await_lifecycle();
  void take_lifecycle();
  void every(boost::asio::steady_timer& timer, std::chrono::nanoseconds interval,
             void (Agent::*action)());
  void on_lifecycle_event(const event_header& header, std::size_t size);
  void learn_container(model::CgroupId cgroup, const process_seen_event& event);
  void on_comm_created(const comm_event& event);
  void scan_host();
  void await_first_scan();
  void take_host_scan(HostScan scan);
  void scan_process(std::uint32_t pid, std::uint64_t noticed_ns, MappingFollower::Seen seen);
  void on_discovery(discover::Discovery discovery);
  void learn_containers(const std::vector<model::Process>& processes);
  void housekeeping();
  void glance();
  void find_gone();
  void forget_gone();
  void free_ended();
  void find_missed_exits(const HostScan& scan);
  void attribute(model::Snapshot& snapshot);
  void credit_retransmits(model::Snapshot& snapshot,
                          const collect::CallCollector::Cgroups& calling);
  void resolve(std::vector<model::CgroupId> cgroups);
  void watch_network();
  void watch_scheduler();
  void configure_workloads();
  void refresh_soon();
  void refresh_workloads();
  void write_policies(const std::vector<KernelChange>& changes);
  std::chrono::nanoseconds scan_interval() const;
  bool is_selected(model::CgroupId cgroup) const;

  boost::asio::io_context& io_;
  AgentOptions options_;
  Clock clock_;
  std::vector<attach::MethodTrial> trials_;
  model::AttachMethod method_ = model::AttachMethod::kNone;
  attribute::ContainerResolver resolver_;
  std::unique_ptr<SocketOwners> sockets_;
  std::unique_ptr<attach::BpfObject> bpf_;
  std::unique_ptr<discover::MappingScanner> scanner_;
  std::unique_ptr<HostScanner> host_scanner_;
  bool scan_again_ = false;  ///< asked for while one was under way
  std::unique_ptr<attach::LibraryProbes> probes_;
  std::unique_ptr<DeadlineWorker> memory_worker_;  ///< reads of tenants' memory
  std::unique_ptr<collect::CommLayouts> layouts_;
  std::unique_ptr<DeadlineWorker> worker_;  ///< for what touches tenants' files and memory
  std::unique_ptr<LibraryRegistry> registry_;
  std::unique_ptr<discover::LibraryFinder> finder_;
  std::mutex collector_mutex_;
  std::unique_ptr<collect::CallCollector> collector_;
  std::unique_ptr<Workloads> workloads_;
  RateLimiter log_limiter_{std::chrono::minutes(1)};
  std::unique_ptr<collect::EventReader> lifecycle_;
  std::unique_ptr<CallStream> stream_;
  std::unique_ptr<MappingFollower> mappings_;
  boost::asio::posix::stream_descriptor lifecycle_descriptor_;
  boost::asio::steady_timer scan_timer_, rescan_timer_, housekeeping_timer_;
  bool refresh_coming_ = false;
  std::uint64_t rounds_ = 0;
};

}  // namespace ingero::app
