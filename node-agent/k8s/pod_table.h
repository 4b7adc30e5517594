// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "k8s/api_object.h"
#include "k8s/informer.h"

namespace ingero::k8s {

/// A sidecar is an init container that keeps running.
enum class ContainerKind { app, init, sidecar, ephemeral };

const char* to_string(ContainerKind kind);

/// What the API server says about a pod. Immutable.
struct PodInfo {
  std::string k8s_namespace;
  std::string name;
  std::string uid;
  /// The uid in the cgroup's path: for a static pod the hash of its manifest, else `uid`.
  std::string cgroup_uid;
  std::string phase;  ///< "Pending", "Running", "Succeeded", "Failed" or "Unknown"
  std::map<std::string, std::string> labels;
  /// At most 64 of them, values of at most 256 bytes. What kubectl writes for itself is left out.
  std::map<std::string, std::string> annotations;
  bool operator==(const PodInfo&) const = default;
};

struct PodEntry {
  std::shared_ptr<const PodInfo> pod;
  /// CLOCK_MONOTONIC when the pod was known to be deleted; nullopt: it is there.
  std::optional<std::uint64_t> gone_ns;
};

struct ContainerEntry {
  std::shared_ptr<const PodInfo> pod;  ///< never null
  std::string name;
  ContainerKind kind = ContainerKind::app;
  /// CLOCK_MONOTONIC when the pod was known to be deleted, or no longer named this container;
  /// nullopt: it does.
  std::optional<std::uint64_t> gone_ns;
};

/// Lets a table of strings be asked with a string_view.
struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const {
    return std::hash<std::string_view>()(text);
  }
};
template <typename T>
using TextMap = std::unordered_map<std::string, T, TextHash, std::equal_to<>>;

/// An immutable state of the table, for readers.
class PodSnapshot {
 public:
  PodSnapshot() = default;
  PodSnapshot(TextMap<ContainerEntry> containers, TextMap<PodEntry> pods)
      : containers_(std::move(containers)), pods_(std::move(pods)) {}

  /// By the 64 hex digits of the runtime. nullptr: not known. Lives as long as the snapshot.
  const ContainerEntry* find_container(std::string_view id) const;
  /// By either uid: the API server's, or the one in the cgroup's path.
  const PodEntry* find_pod(std::string_view uid) const;

  const TextMap<ContainerEntry>& containers() const { return containers_; }
  const TextMap<PodEntry>& pods() const { return pods_; }

 private:
  TextMap<ContainerEntry> containers_;
  TextMap<PodEntry> pods_;
};

struct PodTableStats {
  std::uint64_t malformed_pods = 0;  ///< objects without a namespace, name or uid
  std::uint64_t malformed_ids = 0;   ///< container ids of no known form
  std::uint64_t dropped = 0;         ///< containers whose retention is over
};

/// Which pod and container each container id of the node belongs to. An informer writes, others
/// read snapshots. Thread safe.
///
/// What is gone stays for the retention, as its last calls are still to be told; an id is never
/// given to another pod meanwhile, since runtimes draw them at random.
class PodTable {
 public:
  explicit PodTable(std::chrono::nanoseconds retention = std::chrono::seconds(60),
                    const ClockSource& clock = system_clock_source());

  /// All pods there are; those that are not among them are gone.
  void replace(const std::vector<nlohmann::json>& pods);
  void apply(ChangeType type, const nlohmann::json& pod);

  /// The current state, without what is past its retention. Copied at most once per change, so it
  /// is cheap to ask for.
  std::shared_ptr<const PodSnapshot> snapshot() const;

  PodTableStats stats() const;

 private:
  struct Pod {
    PodEntry entry;
    std::vector<std::string> container_ids;  ///< that its status names now
  };

  void store(const nlohmann::json& object);
  void mark_pod_gone(Pod& pod);
  void mark_container_gone(const std::string& id);
  void note_gone(std::uint64_t gone_ns) const;
  void drop_expired() const;

  const std::uint64_t retention_ns_;
  const ClockSource& clock_;

  mutable std::mutex mutex_;
  mutable TextMap<Pod> pods_;  ///< by the API server's uid
  mutable TextMap<ContainerEntry> containers_;
  /// When something expires next; nullopt: nothing is gone.
  mutable std::optional<std::uint64_t> next_expiry_ns_;
  mutable std::shared_ptr<const PodSnapshot> snapshot_;  ///< null: something changed since
  mutable PodTableStats stats_;
};

/// What a pod's status says of one container.
struct ContainerStatus {
  std::string id;
  std::string name;
  ContainerKind kind = ContainerKind::app;
};

/// All containers of a Pod object, those that a restart replaced included. `malformed` counts the
/// ids that are not understood.
std::vector<ContainerStatus> read_container_statuses(const nlohmann::json& pod,
                                                     std::uint64_t& malformed);

/// nullopt: the object is no pod.
std::optional<PodInfo> read_pod(const nlohmann::json& pod);

/// "containerd://<64 hex>" without the runtime; nullopt: something else.
std::optional<std::string> parse_container_id(std::string_view text);

/// The informer's options for the pods of one node.
InformerOptions make_pod_informer_options(const std::string& node);
/// Hands what an informer learns to `table`, which must outlive it.
InformerHandlers make_pod_handlers(PodTable& table);

}  // namespace ingero::k8s
