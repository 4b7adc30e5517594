// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <unordered_map>

#include "discover/file_inspector.h"
#include "model/identity.h"

namespace ingero::discover {

/// What looking into the files of one container may cost. Each container has a store of looks, processor
/// time and bytes read, which fills up again with time; a look begins while there is something of each, and
/// what it takes beyond that is paid before the next.
class InspectionBudget {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// Enough for the some thousand files that a container with PyTorch maps at its start.
  static constexpr double kLooks = 4096, kLooksPerSecond = 20;
  static constexpr double kCpuSeconds = 5, kCpuSecondsPerSecond = 0.05;
  static constexpr double kMiB = 2048, kMiBPerSecond = 32;

  bool allows(model::CgroupId container, Time now);
  void charge(model::CgroupId container, const Inspection::Cost& cost, Time now);

  /// Containers whose store is not full.
  std::size_t size() const { return stores_.size(); }

 private:
  struct Store {
    double looks = kLooks;
    double cpu_seconds = kCpuSeconds;
    double mib = kMiB;
    Time filled_at;
    void fill(Time now);
    bool is_full() const;
  };
  void forget_full(Time now);

  std::unordered_map<model::CgroupId, Store, model::IdentityHash> stores_;
  Time swept_at_{};
};

}  // namespace ingero::discover
