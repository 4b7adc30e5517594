// SPDX-License-Identifier: Apache-2.0
#include "collect/error_codes.h"

namespace ingero::collect {

std::int32_t ErrorCodes::admit(std::uint64_t cgroup, std::uint16_t function, std::int32_t code) {
  std::set<std::int32_t>& codes = admitted_[{cgroup, function}];
  if (codes.contains(code)) return code;
  if (codes.size() >= kMaxPerFunction) return model::kOtherErrorCode;
  codes.insert(code);
  return code;
}

void ErrorCodes::forget(const std::unordered_set<model::CgroupId, model::IdentityHash>& cgroups) {
  std::erase_if(admitted_, [&](const auto& entry) {
    return cgroups.contains(static_cast<model::CgroupId>(entry.first.first));
  });
}

}  // namespace ingero::collect
