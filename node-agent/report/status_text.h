// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace ingero::report {

inline constexpr std::size_t kMaxNameBytes = 253;
inline constexpr std::size_t kMaxMessageBytes = 1024;
inline constexpr std::int64_t kMaxInt32 = 2'147'483'647;

// Statuses are written by agents, but anyone with the rights may have put anything there: what has
// another type reads as empty, and nothing throws.

/// An array member, or an empty one.
const nlohmann::json& array_at(const nlohmann::json& object, const char* key);
/// An object member, or an empty one.
const nlohmann::json& object_at(const nlohmann::json& object, const char* key);
std::string text_at(const nlohmann::json& object, const char* key, std::size_t max_bytes);
/// Between 0 and `max`.
std::int64_t count_at(const nlohmann::json& object, const char* key, std::int64_t max);
bool flag_at(const nlohmann::json& object, const char* key);

/// Text for a status: valid UTF-8 on one line, of at most `max_bytes`.
std::string clean(std::string_view text, std::size_t max_bytes);

}  // namespace ingero::report
