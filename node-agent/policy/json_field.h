// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace ingero::policy {

/// A place in an untrusted JSON document, with its path for messages. What is absent or null reads
/// as nothing; what has another type or is out of bounds reads as nothing too, and is the error that
/// the reading of the document ends with. The document and the error must outlive it.
class JsonField {
 public:
  JsonField(const nlohmann::json& value, std::string path, std::optional<Error>& first_error)
      : value_(value.is_null() ? nullptr : &value),
        path_(std::move(path)),
        first_error_(&first_error) {}

  bool exists() const { return value_ != nullptr; }
  const std::string& path() const { return path_; }

  /// A member of an object.
  JsonField at(const char* key) const;
  std::optional<bool> boolean() const;
  std::optional<std::int64_t> integer(std::int64_t min, std::int64_t max) const;
  std::optional<std::string> text(std::size_t max_bytes) const;
  /// Elements of an array; empty where there is none.
  std::vector<JsonField> elements(std::size_t max_count) const;
  std::vector<std::string> texts(std::size_t max_count, std::size_t max_bytes) const;
  /// Members of an object, by name.
  std::vector<std::pair<std::string, JsonField>> members(std::size_t max_count,
                                                         std::size_t max_key_bytes) const;

  /// Makes `cause` the error, unless there is one.
  void refuse(std::string cause, std::string hint = "") const;

 private:
  JsonField(const nlohmann::json* value, std::string path, std::optional<Error>* first_error)
      : value_(value), path_(std::move(path)), first_error_(first_error) {}
  /// False, after having refused it, where there is a value of another type.
  bool expect(bool fits, const char* what) const;

  const nlohmann::json* value_;  ///< nullptr: there is nothing
  std::string path_;
  std::optional<Error>* first_error_;
};

}  // namespace ingero::policy
