// SPDX-License-Identifier: Apache-2.0
#include "report/status_text.h"

#include <algorithm>

#include "base/text.h"
#include "base/utf8.h"

namespace ingero::report {

namespace {

using nlohmann::json;

const json* find(const json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

}  // namespace

const json& array_at(const json& object, const char* key) {
  static const json none = json::array();
  const json* value = find(object, key);
  return value != nullptr && value->is_array() ? *value : none;
}

const json& object_at(const json& object, const char* key) {
  static const json none = json::object();
  const json* value = find(object, key);
  return value != nullptr && value->is_object() ? *value : none;
}

std::string text_at(const json& object, const char* key, std::size_t max_bytes) {
  const json* value = find(object, key);
  if (value == nullptr || !value->is_string()) return "";
  return clean(value->get_ref<const std::string&>(), max_bytes);
}

std::int64_t count_at(const json& object, const char* key, std::int64_t max) {
  const json* value = find(object, key);
  if (value == nullptr || !value->is_number_integer()) return 0;
  if (value->is_number_unsigned())
    return static_cast<std::int64_t>(
        std::min(value->get<std::uint64_t>(), static_cast<std::uint64_t>(max)));
  return std::clamp<std::int64_t>(value->get<std::int64_t>(), 0, max);
}

bool flag_at(const json& object, const char* key) {
  const json* value = find(object, key);
  return value != nullptr && value->is_boolean() && value->get<bool>();
}

std::string clean(std::string_view text, std::size_t max_bytes) {
  return cut_utf8(escape_terminal(text), max_bytes);
}

}  // namespace ingero::report
