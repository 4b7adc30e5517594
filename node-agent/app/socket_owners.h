// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_set>
#include <utility>
#include <vector>

#include "attribute/container_resolver.h"
#include "model/snapshot.h"

namespace ingero::app {

/// Whose a socket is: that of the cgroup that made it. Sockets belong to cgroups of the v2 hierarchy,
/// which need not be the one that calls are counted by; a container has the same id in both. Where the
/// cgroup says nothing, the network namespace does, if it is that of traced processes and not the
/// host's. Thread safe.
class SocketOwners {
 public:
  using ProcessSource = std::function<std::vector<model::Process>()>;

  SocketOwners(attribute::ContainerResolver& containers, ProcessSource traced);

  /// Gives each row of retransmissions the cgroup that calls are counted by; drops those of sockets
  /// that belong to no traced process's container. Returns those, as they were read, when there are so
  /// many that the kernel's map would fill up: nobody asks for them any more. `calling`: traced, beside those
  /// of the snapshot's processes and calls.
  std::vector<model::RetransmitSeries> attribute(
      model::Snapshot& snapshot,
      const std::unordered_set<model::CgroupId, model::IdentityHash>& calling = {});

  /// The same for one socket, by what the last snapshot showed.
  std::optional<model::CgroupId> owner(model::CgroupId socket, std::uint32_t netns);

 private:
  std::optional<model::CgroupId> by_cgroup(model::CgroupId socket,
                                           const attribute::ContainerTable& table);
  std::uint32_t netns_of(const model::ProcessKey& process);
  void learn_namespaces(const std::vector<model::Process>& processes);
  void forget_sockets(const model::Snapshot& snapshot);
  struct Owner {
    model::CgroupId cgroup = model::CgroupId::kUnknown;
    bool whole_pod = false;
    auto operator<=>(const Owner&) const = default;
  };
  std::optional<Owner> owner_of(const model::RetransmitSeries& row,
                                const attribute::ContainerTable& table,
                                const std::set<model::CgroupId>& traced);
  void credit(const model::RetransmitSeries& row, const Owner& owner);
  void forget_credits(const attribute::ContainerTable& table);

  attribute::ContainerResolver& containers_;
  const ProcessSource traced_;
  std::unique_ptr<attribute::ContainerResolver> v2_;  ///< null: the same hierarchy, or none mounted
  std::uint32_t host_netns_ = 0;
  std::uint64_t learnt_ns_ = 0;  ///< when owner() last looked at the processes
  std::mutex mutex_;
  std::uint64_t rounds_ = 0;
  using Row = std::tuple<model::CgroupId, std::uint32_t, bool>;  // as the kernel counts: also IPv6
  std::map<Row, std::uint64_t> credited_;                        ///< of its segments, so far
  /// Segments by whose they were when they were first seen, and whether they are IPv6: what a container
  /// or a pod was told once stays its own, whatever is learned later.
  std::map<std::pair<Owner, bool>, std::uint64_t> credits_;
  std::map<model::ProcessKey, std::uint32_t> netns_;
  std::map<std::uint32_t, model::CgroupId> by_netns_;  ///< of traced processes, but the host's
};

}  // namespace ingero::app
