// SPDX-License-Identifier: Apache-2.0
// `ingero recordings`: which recordings of pods are on this node.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "config/config.h"
#include "model/row_sink.h"
#include "record/recording_store.h"

namespace ingero::app {

struct RecordingsOptions {
  std::string directory = config::RecordingsConfig{}.directory;
  std::string format = "table";
};

/// A file of the store, and what it says about itself. Nothing in it is trusted.
struct ListedRecording {
  record::PodFile file;
  std::optional<std::int64_t> started_ns, ended_ns;  ///< unix time
  std::string end_reason;                            ///< empty: it goes on, or ended without a word
  std::optional<std::int64_t> calls, lost;
  std::string error;  ///< why it could not be read
};

/// The files below the folder, oldest recording first. An error: the folder cannot be read.
Result<std::vector<ListedRecording>> list_recordings(const std::string& directory);

void print_recordings(const std::vector<ListedRecording>& recordings, model::RowSink& sink);

/// Exit status: 0; 2 the folder cannot be read.
int run_recordings(const RecordingsOptions& options);

}  // namespace ingero::app
