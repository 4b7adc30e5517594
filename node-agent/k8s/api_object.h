// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace ingero::k8s {

/// A top-level field of objects that is dropped while the text is parsed, so that it never costs
/// memory.
struct DroppedField {
  DroppedField(const char* field) : name(field) {}
  DroppedField(std::string field, std::vector<std::string> kept_members)
      : name(std::move(field)), except(std::move(kept_members)) {}

  std::string name;
  std::vector<std::string> except;  ///< its members that stay; empty: the whole field goes
};

/// metadata.managedFields, often half of an object, always goes.
using DroppedFields = std::vector<DroppedField>;

struct ListPage {
  std::vector<nlohmann::json> objects;
  std::string resource_version;
  std::string next;  ///< the continue token; empty: this was the last page
};

/// Reads one page of a list.
Result<ListPage> parse_list_page(std::string_view text, const DroppedFields& dropped);

enum class WatchEventType { added, modified, deleted, bookmark, error };

struct WatchEvent {
  WatchEventType type = WatchEventType::bookmark;
  nlohmann::json object;         ///< for an error: the Status
  std::string resource_version;  ///< of the object; empty for an error
};

/// Reads one line of a watch.
Result<WatchEvent> parse_watch_line(std::string_view line, const DroppedFields& dropped);

/// The text at a path such as {"metadata", "name"}; empty: it is not there, or is no text.
std::string text_at(const nlohmann::json& object, std::initializer_list<const char*> path);

}  // namespace ingero::k8s
