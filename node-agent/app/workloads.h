// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "attribute/container_resolver.h"
#include "export/workload.h"
#include "k8s/pod_table.h"
#include "model/snapshot.h"
#include "policy/decision.h"

namespace ingero::app {

/// What the cluster says, as far as it is known. Immutable.
struct ClusterView {
  std::shared_ptr<const k8s::PodSnapshot> pods;  ///< never null
  bool pods_synced = false;
  /// Labels by namespace; null: not known yet.
  std::shared_ptr<const std::map<std::string, policy::Labels>> namespaces;
  /// Null: not known yet, so nothing that a policy could select is decided.
  std::shared_ptr<const policy::PolicySet> policies;
};

/// What holds for a cgroup from now on.
struct KernelChange {
  model::CgroupId cgroup = model::CgroupId::kUnknown;
  std::optional<policy::Decision> decision;  ///< nullopt: the cgroup is gone
  bool streamed = false;                     ///< its calls are recorded
};

/// A container that is known, for reports and /debug/state.
struct CoveredContainer {
  model::CgroupId cgroup = model::CgroupId::kUnknown;
  std::shared_ptr<const k8s::PodInfo> pod;  ///< null: not of a known pod
  std::string container;
  std::string kind;   ///< app, init, sidecar, ephemeral; "" outside of pods
  std::string state;  ///< traced, waiting, untraced, gone
  std::string reason;
  std::optional<policy::Decision> decision;
};

/// Who the cgroups of this host are, and which of their calls count: joins what is known about
/// containers, pods and policies, tells the kernel, and keeps out of every snapshot what does not
/// count. Thread safe.
///
/// A cgroup is counted before it is classified, so nothing is lost while its pod's metadata is on its
/// way; its series appear with their labels, or not at all. What was counted outside of the covered
/// spans is taken off again.
class Workloads {
 public:
  /// Everything that is counted now, uncovered spans included.
  using CountReader = std::function<model::Snapshot()>;
  /// Puts what holds for cgroups into force in the kernel.
  using KernelWriter = std::function<void(const std::vector<KernelChange>&)>;

  struct Settings {
    std::chrono::nanoseconds retention = std::chrono::seconds(60);
    std::vector<std::string> allowed_labels{"*"};  ///< globs
    /// How long the series of a container wait for the metadata of its pod, those of a cgroup for its
    /// path.
    std::chrono::nanoseconds patience = std::chrono::seconds(10);
    /// What ended containers have counted stays in snapshots; they leave the series only.
    bool keep_ended = false;
  };

  Workloads(CountReader read_counts, KernelWriter write_kernel)
      : read_counts_(std::move(read_counts)), write_kernel_(std::move(write_kernel)) {}

  void set_settings(Settings settings);
  /// Null: no cluster; `fallback` decides.
  void set_cluster(std::shared_ptr<const ClusterView> view);
  /// What holds where no policy can match.
  void set_fallback(policy::Decision fallback);

  /// Pods of which the calls are recorded now, as far as a policy asks for it; by uid.
  void set_recorded_pods(std::set<std::string> uids);

  /// Looks at all cgroups anew; cgroups in `used` are kept although their directory may be gone.
  /// Returns those whose series have ended for good.
  std::vector<model::CgroupId> refresh(const attribute::ContainerTable& containers,
                                       std::uint64_t now_ns);

  /// Containers outside of pods of which nothing is left but what they have counted; all others live.
  void set_gone(const std::vector<model::CgroupId>& gone, std::uint64_t now_ns);

  /// Removes what does not count, takes off what was counted while nothing covered it, and adds
  /// what could not be attributed to its counters.
  void filter(model::Snapshot& snapshot, std::uint64_t now_ns) const;

  exporting::Workload workload_of(model::CgroupId cgroup) const;
  std::vector<CoveredContainer> containers() const;

 private:
  using Place = std::pair<std::uint16_t, std::uint8_t>;       // function, direction
  using ErrorPlace = std::pair<std::uint16_t, std::int32_t>;  // function, code
  struct Baseline {
    std::map<Place, model::CallTotals> calls;
    std::map<ErrorPlace, std::uint64_t> errors;
  };
  enum class Kind { not_pod, waiting, pod, unknown_pod };
  struct Entry {
    std::shared_ptr<const attribute::ContainerInfo> info;
    Kind kind = Kind::waiting;
    std::shared_ptr<const k8s::PodInfo> pod;
    std::string container;
    std::string container_kind;
    bool container_known = false;
    std::uint64_t first_seen_ns = 0;
    std::optional<std::uint64_t> gone_ns;
    std::optional<policy::Decision> decision;
    policy::FunctionSet covered;  ///< ever
    std::optional<std::uint64_t> uncovered_ns;
    Baseline baseline;
    bool ended = false;
    bool left = false;     ///< the series only: see Settings::keep_ended
    bool unnamed = false;  ///< its calls were told without a name, and go on so
    bool streamed = false;
    mutable std::uint64_t unknown_pod_calls = 0;  ///< as far as they are in the sum below
  };
  struct Unnamed {
    std::uint64_t first_seen_ns = 0;
    std::uint64_t calls = 0;  ///< as far as they are in the sum below
    bool settled = false;     ///< told without a name from now on
  };
  using Label = std::tuple<std::string, std::string, std::string>;  // namespace, pod, container

  void classify(Entry& entry, std::uint64_t now_ns) const;
  void classify_pod(Entry& entry, std::uint64_t now_ns) const;
  bool is_patient(const Entry& entry, std::uint64_t now_ns) const;
  const k8s::PodEntry* find_pod(const Entry& entry, std::uint64_t now_ns) const;
  const k8s::ContainerEntry* find_container(const Entry& entry, const k8s::PodInfo* pod) const;
  Label label_of(const Entry& entry) const;
  void end_gone(std::uint64_t now_ns);
  void count_unnamed(const std::map<model::CgroupId, std::uint64_t>& calls,
                     std::uint64_t now_ns) const;
  std::optional<policy::Decision> decide(const Entry& entry) const;
  bool is_recorded(const Entry& entry) const;
  void take_decision(model::CgroupId cgroup, Entry& entry, policy::Decision decision,
                     std::uint64_t now_ns, std::optional<model::Snapshot>& counts);
  static void set_baseline(model::CgroupId cgroup, Entry& entry,
                           const policy::FunctionSet& functions, const model::Snapshot& counts);
  bool is_visible(const Entry& entry, std::uint64_t now_ns) const;
  bool counts(const Entry* entry, std::uint16_t function, std::uint64_t now_ns) const;
  void filter_calls(model::Snapshot& snapshot, std::uint64_t now_ns) const;
  void filter_errors(model::Snapshot& snapshot, std::uint64_t now_ns) const;
  exporting::Workload labelled(const Entry& entry) const;
  bool is_allowed(const std::string& name) const;
  const Entry* find(model::CgroupId cgroup) const;

  const CountReader read_counts_;
  const KernelWriter write_kernel_;

  mutable std::mutex mutex_;
  Settings settings_;
  std::shared_ptr<const ClusterView> cluster_;
  policy::Decision fallback_;
  std::set<std::string> recorded_pods_;
  std::unordered_map<model::CgroupId, Entry, model::IdentityHash> entries_;
  mutable std::unordered_map<model::CgroupId, Unnamed, model::IdentityHash> unnamed_;
  mutable std::uint64_t unnamed_calls_ = 0;
  mutable std::uint64_t unknown_pod_calls_ = 0;
};

/// The name of the label that carries a pod's label or annotation: `prefix` and the name, with _ for
/// what Prometheus does not allow.
std::string metric_label_name(std::string_view prefix, std::string_view name);

}  // namespace ingero::app
