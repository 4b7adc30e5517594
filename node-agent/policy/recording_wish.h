// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace ingero::policy {

/// What a policy asks for under spec.recording. The defaults are those of the CRD's schema.
struct RecordingSpec {
  std::string name;  ///< another name asks for another recording
  std::chrono::nanoseconds duration = std::chrono::minutes(10);
  std::uint64_t max_bytes = std::uint64_t{1} << 30;  ///< all files of one pod
  std::uint32_t files = 4;  ///< that share max_bytes; the oldest makes room for the next
  bool operator==(const RecordingSpec&) const = default;
};

/// What all policies that select a pod ask for together.
struct RecordingWish {
  RecordingSpec spec;                 ///< the longest time, the largest size, the most files
  std::vector<std::string> policies;  ///< names of those that ask
  /// Another value is another request: the policies, by uid, and the recordings' names.
  std::string request;
  bool operator==(const RecordingWish&) const = default;
};

}  // namespace ingero::policy
