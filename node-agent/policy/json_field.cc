// SPDX-License-Identifier: Apache-2.0
#include "policy/json_field.h"

#include <limits>
#include <utility>

#include "base/text.h"

namespace ingero::policy {

using nlohmann::json;

void JsonField::refuse(std::string cause, std::string hint) const {
  if (*first_error_) return;
  *first_error_ = Error{"read field", path_, std::move(cause), std::move(hint), 0};
}

bool JsonField::expect(bool fits, const char* what) const {
  if (value_ != nullptr && !fits)
    refuse(fmt::format("it is a JSON {}, not {}", value_->type_name(), what));
  return value_ != nullptr && fits;
}

JsonField JsonField::at(const char* key) const {
  JsonField member(nullptr, path_.empty() ? key : fmt::format("{}.{}", path_, key), first_error_);
  if (value_ == nullptr || !expect(value_->is_object(), "an object")) return member;
  const auto found = value_->find(key);
  if (found != value_->end() && !found->is_null()) member.value_ = &*found;
  return member;
}

std::optional<bool> JsonField::boolean() const {
  if (value_ == nullptr || !expect(value_->is_boolean(), "true or false")) return std::nullopt;
  return value_->get<bool>();
}

std::optional<std::int64_t> JsonField::integer(std::int64_t min, std::int64_t max) const {
  if (value_ == nullptr || !expect(value_->is_number_integer(), "an integer")) return std::nullopt;
  const bool fits = !value_->is_number_unsigned() ||
                    value_->get<std::uint64_t>() <=
                        static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (!fits || value_->get<std::int64_t>() < min || value_->get<std::int64_t>() > max) {
    refuse(fmt::format("{} is not between {} and {}", value_->dump(), min, max));
    return std::nullopt;
  }
  return value_->get<std::int64_t>();
}

std::optional<std::string> JsonField::text(std::size_t max_bytes) const {
  if (value_ == nullptr || !expect(value_->is_string(), "a string")) return std::nullopt;
  const auto& text = value_->get_ref<const std::string&>();
  if (text.size() > max_bytes) {
    refuse(fmt::format("it is {} bytes long, more than {}", text.size(), max_bytes));
    return std::nullopt;
  }
  return text;
}

std::vector<JsonField> JsonField::elements(std::size_t max_count) const {
  std::vector<JsonField> out;
  if (value_ == nullptr || !expect(value_->is_array(), "an array")) return out;
  if (value_->size() > max_count) {
    refuse(fmt::format("it has {} elements, more than {}", value_->size(), max_count));
    return out;
  }
  for (std::size_t i = 0; i < value_->size(); ++i) {
    const json& element = (*value_)[i];
    out.push_back(JsonField(element.is_null() ? nullptr : &element, fmt::format("{}[{}]", path_, i),
                            first_error_));
  }
  return out;
}

std::vector<std::string> JsonField::texts(std::size_t max_count, std::size_t max_bytes) const {
  std::vector<std::string> out;
  for (const JsonField& element : elements(max_count)) {
    if (!element.exists()) element.refuse("it is null, not a string");
    if (auto text = element.text(max_bytes)) out.push_back(std::move(*text));
  }
  return out;
}

std::vector<std::pair<std::string, JsonField>> JsonField::members(std::size_t max_count,
                                                                  std::size_t max_key_bytes) const {
  std::vector<std::pair<std::string, JsonField>> out;
  if (value_ == nullptr || !expect(value_->is_object(), "an object")) return out;
  if (value_->size() > max_count) {
    refuse(fmt::format("it has {} members, more than {}", value_->size(), max_count));
    return out;
  }
  for (const auto& [key, value] : value_->items()) {
    if (key.empty() || key.size() > max_key_bytes) {
      refuse(
          fmt::format("one of its keys is {} bytes long, not 1 to {}", key.size(), max_key_bytes));
      return out;
    }
    out.emplace_back(key,
                     JsonField(value.is_null() ? nullptr : &value,
                               fmt::format("{}[{}]", path_, escape_terminal(key)), first_error_));
  }
  return out;
}

}  // namespace ingero::policy
