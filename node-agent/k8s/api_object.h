// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace ingero::k8s {

/// Top-level fields of objects that are dropped while the text is parsed, so that they never cost
/// memory. metadata.managedFields, often half of an object, always goes.
using DroppedFields = std::vector<std::string>;

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
