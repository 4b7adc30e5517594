// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "record/recording_store.h"

namespace ingero::app {

/// A file of the store, and what it says about itself. Nothing in it is trusted.
struct ListedRecording {
  record::PodFile file;
  std::optional<std::int64_t> started_ns, ended_ns;  ///< unix time
  std::string end_reason;                            ///< empty: it goes on, or ended without a word
  std::optional<std::int64_t> calls, lost;
  std::string error;  ///< why it could not be read
};

/// Reads what the file says; gives up on one that takes seconds, which is none of ours.
ListedRecording list_recording(record::PodFile file);

}  // namespace ingero::app
