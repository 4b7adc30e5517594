// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>

namespace ingero {

/// What each of many (cgroups, processes) may use of something that all share: so much a second, saved up to
/// `burst`. In any unit: events, nanoseconds. Not thread safe.
class ShareBudget {
 public:
  /// Holds at most `max_keys` keys. When all of them are in use, further ones share one budget.
  ShareBudget(double per_second, double burst, std::size_t max_keys = 4096)
      : per_ns_(per_second / 1e9), burst_(burst), max_keys_(max_keys) {}

  /// Takes `amount` if it is there.
  bool take(std::uint64_t key, std::uint64_t now_ns, double amount = 1);

  /// For work whose cost is known afterwards only: whether anything is left, and what it did cost. A debt is
  /// paid off by waiting.
  bool has_any(std::uint64_t key, std::uint64_t now_ns);
  void charge(std::uint64_t key, std::uint64_t now_ns, double amount);

  std::size_t size() const { return accounts_.size(); }

 private:
  struct Account {
    double left = 0;
    std::uint64_t at_ns = 0;
  };
  Account& account_of(std::uint64_t key, std::uint64_t now_ns);
  double left_at(const Account& account, std::uint64_t now_ns) const;

  const double per_ns_, burst_;
  const std::size_t max_keys_;
  std::unordered_map<std::uint64_t, Account> accounts_;
  Account shared_;
  bool shared_used_ = false;
};

}  // namespace ingero
