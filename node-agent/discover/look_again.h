// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "model/identity.h"

namespace ingero::discover {

/// When what failed is tried again: after a second, then after twice as long each time, up to ten minutes.
/// Bounded: when there is too much of it, all is tried again.
class LookAgain {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Key = std::pair<model::ProcessKey, model::FileKey>;
  static constexpr std::chrono::seconds kFirst{1}, kLongest{600};
  static constexpr std::size_t kMost = 60000;

  bool is_due(const Key& key, Time now) const {
    const auto it = failures_.find(key);
    return it == failures_.end() || now >= it->second.next;
  }
  void failed(const Key& key, Time now) {
    if (failures_.size() >= kMost) failures_.clear();
    Failure& failure = failures_[key];
    failure.wait =
        failure.wait == failure.wait.zero() ? kFirst : std::min(failure.wait * 2, kLongest);
    failure.next = now + failure.wait;
    soonest_ = std::min(soonest_, failure.next);
  }
  /// Whether there is something to be tried again. Told once.
  bool take_due(Time now) {
    if (now < soonest_) return false;
    soonest_ = Time::max();
    for (const auto& [key, failure] : failures_) {
      if (failure.next > now) soonest_ = std::min(soonest_, failure.next);
    }
    return true;
  }
  void succeeded(const Key& key) { failures_.erase(key); }

 private:
  struct Failure {
    std::chrono::seconds wait{0};
    Time next;
  };
  std::map<Key, Failure> failures_;
  Time soonest_ = Time::max();
};

}  // namespace ingero::discover
