// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "record/recording_store.h"

namespace ingero::app {

/// What recordings of pods may take on this node. What a recording may grow to is promised to it before it
/// begins, so that none has to end because of another.
class RecordingBudget {
 public:
  /// A recording that goes on, or is to begin: whose files stay, and what is promised to it.
  struct Claim {
    record::PodFile recording;    ///< any file of it; no file has to be there
    std::uint64_t max_bytes = 0;  ///< all its files
  };

  explicit RecordingBudget(const config::RecordingsConfig& config) { set_config(config); }

  void set_config(const config::RecordingsConfig& config);

  /// Makes room for `wanted` beside those that go on: removes the oldest files of others, if then there is
  /// room. Else a reason, and nothing is removed.
  std::optional<std::string> refusal(const record::RecordingStore& store,
                                     const std::vector<Claim>& active, const Claim& wanted) const;

  /// Bytes that recordings may still take of the file system of `path`; the nearest folder that exists tells.
  /// What nobody knows is not refused. From any thread.
  std::uint64_t free_bytes(const std::string& path) const;

 private:
  std::uint64_t bytes_ = 0;                           ///< of all recordings
  std::atomic<std::uint32_t> keep_free_percent_ = 0;  ///< of the file system, for others
};

}  // namespace ingero::app
