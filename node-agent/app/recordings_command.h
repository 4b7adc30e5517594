// SPDX-License-Identifier: Apache-2.0
// `ingero recordings`: which recordings of pods are on this node.
#pragma once

#include <string>
#include <vector>

#include "app/listed_recording.h"
#include "base/result.h"
#include "config/config.h"
#include "model/row_sink.h"

namespace ingero::app {

struct RecordingsOptions {
  std::string directory = config::RecordingsConfig{}.directory;
  std::string format = "table";
};

/// The files below the folder, oldest recording first. An error: the folder cannot be read.
Result<std::vector<ListedRecording>> list_recordings(const std::string& directory);

void print_recordings(const std::vector<ListedRecording>& recordings, model::RowSink& sink);

/// Exit status: 0; 2 the folder cannot be read.
int run_recordings(const RecordingsOptions& options);

}  // namespace ingero::app
