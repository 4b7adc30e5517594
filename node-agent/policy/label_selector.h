// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "policy/json_field.h"

namespace ingero::policy {

using Labels = std::map<std::string, std::string>;

enum class SelectorOperator { in, not_in, exists, does_not_exist };

struct SelectorRequirement {
  std::string key;
  SelectorOperator op = SelectorOperator::exists;
  std::vector<std::string> values;  ///< sorted
  bool operator==(const SelectorRequirement&) const = default;
};

/// A Kubernetes label selector: all requirements must hold, so none selects everything. matchLabels
/// are requirements with the operator In. As in Kubernetes, NotIn holds also where the key is absent.
struct LabelSelector {
  std::vector<SelectorRequirement> requirements;

  bool matches(const Labels& labels) const;
  bool operator==(const LabelSelector&) const = default;
};

/// Reads {matchLabels, matchExpressions}; what is absent or null selects everything. Unknown fields
/// are skipped. The error names the field below `path`.
Result<LabelSelector> parse_label_selector(const nlohmann::json& selector, const std::string& path);

/// The same, as a part of a document.
LabelSelector read_label_selector(const JsonField& selector);

}  // namespace ingero::policy
