// SPDX-License-Identifier: Apache-2.0
#include "base/share_budget.h"

#include <algorithm>

namespace ingero {

double ShareBudget::left_at(const Account& account, std::uint64_t now_ns) const {
  const double passed = now_ns > account.at_ns ? static_cast<double>(now_ns - account.at_ns) : 0.0;
  return std::min(burst_, account.left + passed * per_ns_);
}

ShareBudget::Account& ShareBudget::account_of(std::uint64_t key, std::uint64_t now_ns) {
  if (accounts_.size() >= max_keys_ && !accounts_.contains(key)) {
    // A full account says nothing that a new one would not.
    std::erase_if(accounts_,
                  [&](const auto& entry) { return left_at(entry.second, now_ns) >= burst_; });
  }
  Account* account = &shared_;
  if (accounts_.contains(key) || accounts_.size() < max_keys_) {
    account = &accounts_.try_emplace(key, Account{burst_, now_ns}).first->second;
  } else if (!shared_used_) {
    shared_ = {burst_, now_ns};
    shared_used_ = true;
  }
  *account = {left_at(*account, now_ns), now_ns};
  return *account;
}

bool ShareBudget::take(std::uint64_t key, std::uint64_t now_ns, double amount) {
  Account& account = account_of(key, now_ns);
  if (account.left < amount) return false;
  account.left -= amount;
  return true;
}

bool ShareBudget::has_any(std::uint64_t key, std::uint64_t now_ns) {
  return account_of(key, now_ns).left > 0;
}

void ShareBudget::charge(std::uint64_t key, std::uint64_t now_ns, double amount) {
  account_of(key, now_ns).left -= amount;
}

}  // namespace ingero
