// SPDX-License-Identifier: Apache-2.0
#include "k8s/api_object.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/text.h"

namespace ingero::k8s {

namespace {

using nlohmann::json;

// Depth, as nlohmann counts it, of the keys of an object: {"items": [{key}]}, {"object": {key}}.
constexpr int kDepthInList = 3;
constexpr int kDepthInEvent = 2;

constexpr std::array<std::pair<std::string_view, WatchEventType>, 5> kEventTypes{{
    {"ADDED", WatchEventType::added},
    {"MODIFIED", WatchEventType::modified},
    {"DELETED", WatchEventType::deleted},
    {"BOOKMARK", WatchEventType::bookmark},
    {"ERROR", WatchEventType::error},
}};

/// nullopt: not JSON.
std::optional<json> parse(std::string_view text, int object_depth, const DroppedFields& dropped) {
  auto rule = dropped.end();  // of the top-level field that is being read
  const auto keep = [&](int depth, json::parse_event_t event, json& parsed) {
    if (event != json::parse_event_t::key) return true;
    const auto& key = parsed.get_ref<const std::string&>();
    if (depth == object_depth) {
      rule = std::find_if(dropped.begin(), dropped.end(),
                          [&](const DroppedField& field) { return field.name == key; });
      return rule == dropped.end() || !rule->except.empty();
    }
    if (depth != object_depth + 1) return true;
    if (key == "managedFields") return false;
    if (rule == dropped.end()) return true;
    return std::find(rule->except.begin(), rule->except.end(), key) != rule->except.end();
  };
  json parsed = json::parse(text.begin(), text.end(), keep, false);
  if (parsed.is_discarded()) return std::nullopt;
  return parsed;
}

tl::unexpected<Error> problem(const char* operation, std::string_view text,
                              const std::string& cause) {
  return fail(Error{operation, truncate(escape_terminal(text.substr(0, 256)), 80), cause, "", 0});
}

}  // namespace

std::string text_at(const json& object, std::initializer_list<const char*> path) {
  const json* at = &object;
  for (const char* key : path) {
    if (!at->is_object()) return "";
    const auto found = at->find(key);
    if (found == at->end()) return "";
    at = &*found;
  }
  return at->is_string() ? at->get<std::string>() : "";
}

Result<ListPage> parse_list_page(std::string_view text, const DroppedFields& dropped) {
  auto parsed = parse(text, kDepthInList, dropped);
  if (!parsed) return problem("read list", text, "it is not valid JSON");
  ListPage page;
  page.resource_version = text_at(*parsed, {"metadata", "resourceVersion"});
  page.next = text_at(*parsed, {"metadata", "continue"});
  if (page.resource_version.empty()) return problem("read list", text, "it has no resourceVersion");
  const auto items = parsed->find("items");
  if (items == parsed->end() || items->is_null()) return page;  // Go writes an empty list as null
  if (!items->is_array()) return problem("read list", text, "its items are no array");
  page.objects.reserve(items->size());
  for (json& item : *items) page.objects.push_back(std::move(item));
  return page;
}

Result<WatchEvent> parse_watch_line(std::string_view line, const DroppedFields& dropped) {
  auto parsed = parse(line, kDepthInEvent, dropped);
  if (!parsed) return problem("read watch event", line, "it is not valid JSON");
  const std::string name = text_at(*parsed, {"type"});
  const auto type = std::find_if(kEventTypes.begin(), kEventTypes.end(),
                                 [&](const auto& entry) { return entry.first == name; });
  if (type == kEventTypes.end()) return problem("read watch event", line, "its type is not known");
  const auto object = parsed->find("object");
  if (object == parsed->end() || !object->is_object())
    return problem("read watch event", line, "it has no object");
  WatchEvent event{type->second, std::move(*object), ""};
  if (event.type == WatchEventType::error) return event;
  event.resource_version = text_at(event.object, {"metadata", "resourceVersion"});
  if (event.resource_version.empty())
    return problem("read watch event", line, "its object has no resourceVersion");
  return event;
}

}  // namespace ingero::k8s
