// SPDX-License-Identifier: Apache-2.0
#include "policy/label_selector.h"

#include <algorithm>
#include <array>
#include <utility>

namespace ingero::policy {

namespace {

constexpr std::size_t kMaxRequirements = 64;
constexpr std::size_t kMaxValues = 256;
constexpr std::size_t kMaxKeyBytes = 317;  // a prefix of 253, a slash, a name of 63
constexpr std::size_t kMaxValueBytes = 63;

constexpr std::array<std::pair<std::string_view, SelectorOperator>, 4> kOperators{{
    {"In", SelectorOperator::in},
    {"NotIn", SelectorOperator::not_in},
    {"Exists", SelectorOperator::exists},
    {"DoesNotExist", SelectorOperator::does_not_exist},
}};

bool holds(const SelectorRequirement& requirement, const Labels& labels) {
  const auto label = labels.find(requirement.key);
  const bool exists = label != labels.end();
  const auto is_listed = [&] {
    return std::binary_search(requirement.values.begin(), requirement.values.end(), label->second);
  };
  switch (requirement.op) {
    case SelectorOperator::in: return exists && is_listed();
    case SelectorOperator::not_in: return !exists || !is_listed();
    case SelectorOperator::exists: return exists;
    case SelectorOperator::does_not_exist: return !exists;
  }
  return false;
}

SelectorRequirement read_expression(const JsonField& expression) {
  SelectorRequirement requirement;
  const JsonField key = expression.at("key");
  requirement.key = key.text(kMaxKeyBytes).value_or("");
  if (requirement.key.empty()) key.refuse("a key is needed");

  const JsonField op = expression.at("operator");
  const std::string name = op.text(32).value_or("");
  const auto known = std::find_if(kOperators.begin(), kOperators.end(),
                                  [&](const auto& entry) { return entry.first == name; });
  if (known == kOperators.end()) {
    op.refuse("it is no operator", "use In, NotIn, Exists or DoesNotExist");
    return requirement;
  }
  requirement.op = known->second;

  const JsonField values = expression.at("values");
  requirement.values = values.texts(kMaxValues, kMaxValueBytes);
  std::sort(requirement.values.begin(), requirement.values.end());
  const bool takes_values =
      requirement.op == SelectorOperator::in || requirement.op == SelectorOperator::not_in;
  if (takes_values && requirement.values.empty())
    values.refuse(fmt::format("{} needs at least one value", name));
  if (!takes_values && !requirement.values.empty())
    values.refuse(fmt::format("{} takes no values", name));
  return requirement;
}

}  // namespace

bool LabelSelector::matches(const Labels& labels) const {
  return std::all_of(requirements.begin(), requirements.end(),
                     [&](const auto& requirement) { return holds(requirement, labels); });
}

LabelSelector read_label_selector(const JsonField& selector) {
  LabelSelector out;
  for (const auto& [key, value] :
       selector.at("matchLabels").members(kMaxRequirements, kMaxKeyBytes)) {
    if (!value.exists()) value.refuse("it is null, not a string");
    out.requirements.push_back(
        {key, SelectorOperator::in, {value.text(kMaxValueBytes).value_or("")}});
  }
  for (const JsonField& expression : selector.at("matchExpressions").elements(kMaxRequirements))
    out.requirements.push_back(read_expression(expression));
  return out;
}

Result<LabelSelector> parse_label_selector(const nlohmann::json& selector,
                                           const std::string& path) {
  std::optional<Error> error;
  auto out = read_label_selector(JsonField(selector, path, error));
  if (error) return fail(std::move(*error));
  return out;
}

}  // namespace ingero::policy
