// SPDX-License-Identifier: Apache-2.0
#include "export/error_names.h"

#include <algorithm>
#include <tuple>

#include "model/functions.h"

namespace ingero::exporting {
namespace {

std::string full_name(const ErrorNames::Code& code) {
  return model::result_name(operations()[code.operation].api, code.code);
}

bool has_name(const ErrorNames::Code& code) {
  const std::string name = full_name(code);
  return !name.empty() && name.front() != '-' && (name.front() < '0' || name.front() > '9');
}

}  // namespace

void ErrorNames::admit(std::vector<Code> codes) {
  std::erase_if(codes, [](const Code& code) {
    return !model::is_failure(operations()[code.operation].api, code.code);
  });
  std::sort(codes.begin(), codes.end());
  codes.erase(std::unique(codes.begin(), codes.end()), codes.end());
  std::stable_partition(codes.begin(), codes.end(), has_name);

  std::size_t refused = 0;
  for (const Code& code : codes) {
    std::set<std::int32_t>& admitted = admitted_[code.operation];
    if (admitted.contains(code.code)) continue;
    if (admitted.size() < kMaxPerOperation) {
      admitted.insert(code.code);
    } else {
      ++refused;
    }
  }
  if (refused > refused_now_) refused_total_ += refused - refused_now_;
  refused_now_ = refused;
}

std::string ErrorNames::name(const Code& code) const {
  const auto found = admitted_.find(code.operation);
  const bool admitted = found != admitted_.end() && found->second.contains(code.code);
  return admitted ? full_name(code) : "other";
}

}  // namespace ingero::exporting
