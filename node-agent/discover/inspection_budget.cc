// SPDX-License-Identifier: Apache-2.0
#include "discover/inspection_budget.h"

#include <algorithm>

namespace ingero::discover {
namespace {

constexpr std::chrono::seconds kBetweenSweeps{10};

}  // namespace

void InspectionBudget::Store::fill(Time now) {
  const double seconds = std::chrono::duration<double>(now - filled_at).count();
  filled_at = now;
  looks = std::min(kLooks, looks + seconds * kLooksPerSecond);
  cpu_seconds = std::min(kCpuSeconds, cpu_seconds + seconds * kCpuSecondsPerSecond);
  mib = std::min(kMiB, mib + seconds * kMiBPerSecond);
}

bool InspectionBudget::Store::is_full() const {
  return looks >= kLooks && cpu_seconds >= kCpuSeconds && mib >= kMiB;
}

bool InspectionBudget::allows(model::CgroupId container, Time now) {
  const auto it = stores_.find(container);
  if (it == stores_.end()) return true;
  Store& store = it->second;
  store.fill(now);
  return store.looks >= 1 && store.cpu_seconds > 0 && store.mib > 0;
}

void InspectionBudget::charge(model::CgroupId container, const Inspection::Cost& cost, Time now) {
  if (now - swept_at_ > kBetweenSweeps) forget_full(now);
  Store& store =
      stores_.try_emplace(container, Store{kLooks, kCpuSeconds, kMiB, now}).first->second;
  store.fill(now);
  store.looks -= 1;
  store.cpu_seconds -= std::chrono::duration<double>(cost.cpu).count();
  store.mib -= static_cast<double>(cost.bytes) / (1 << 20);
}

void InspectionBudget::forget_full(Time now) {
  swept_at_ = now;
  std::erase_if(stores_, [now](const auto& entry) {
    Store filled = entry.second;
    filled.fill(now);
    return filled.is_full();
  });
}

}  // namespace ingero::discover
