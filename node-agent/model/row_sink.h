// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ingero::model {

/// One value of a query's result. The text is valid until the next row.
struct Value {
  enum class Kind { kNull, kInteger, kReal, kText, kBlob };
  Kind kind = Kind::kNull;
  std::string_view text;  ///< numbers as decimal text, blobs as they are
};

/// Takes the results of queries, one after the other.
class RowSink {
 public:
  virtual ~RowSink() = default;
  virtual void begin(const std::vector<std::string>& columns) = 0;
  /// Returns whether it wants more.
  virtual bool row(std::span<const Value> values) = 0;
  virtual void end() = 0;
};

}  // namespace ingero::model
