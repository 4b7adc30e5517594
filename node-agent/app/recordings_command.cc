// SPDX-License-Identifier: Apache-2.0
#include "app/recordings_command.h"

#include <dirent.h>
#include <fmt/format.h>
#include <unistd.h>

#include <iostream>

#include "app/patience.h"
#include "base/text.h"
#include "base/timestamp.h"
#include "cli/query_output.h"
#include "cli/terminal.h"

namespace ingero::app {
namespace {

using model::Value;

constexpr int kCannotRun = 2;
const std::vector<std::string> kColumns = {"namespace", "pod",        "file",  "started",
                                           "ended",     "end_reason", "calls", "lost",
                                           "bytes",     "path",       "error"};

int say(const Error& error) {
  std::cerr << "ingero recordings: " << error.message() << "\n";
  return kCannotRun;
}

Status check_folder(const std::string& path) {
  DIR* folder = ::opendir(path.c_str());
  if (folder == nullptr)
    return fail_errno("read the folder", path, "name the folder of recordings.directory");
  ::closedir(folder);
  return {};
}

/// Keeps the text of a row's values until they are printed.
class Row {
 public:
  void add(std::string text) { values_.emplace_back(Value::Kind::kText, escape_terminal(text)); }
  void add_or_null(const std::string& text) {
    if (text.empty()) values_.emplace_back();
    else add(text);
  }
  void add(std::uint64_t number) {
    values_.emplace_back(Value::Kind::kInteger, std::to_string(number));
  }
  void add(const std::optional<std::int64_t>& number) {
    if (number) add(static_cast<std::uint64_t>(*number));
    else values_.emplace_back();
  }
  void add_time(const std::optional<std::int64_t>& unix_ns) {
    add_or_null(unix_ns ? format_timestamp(static_cast<std::uint64_t>(*unix_ns)) : "");
  }
  bool print(model::RowSink& sink) const {
    std::vector<Value> views;
    for (const auto& [kind, text] : values_) views.push_back({kind, text});
    return sink.row(views);
  }

 private:
  std::vector<std::pair<Value::Kind, std::string>> values_;
};

}  // namespace

Result<std::vector<ListedRecording>> list_recordings(const std::string& directory) {
  if (auto readable = check_folder(directory); !readable) return fail(readable.error());
  std::vector<ListedRecording> recordings;
  for (record::PodFile& file : record::RecordingStore(directory).list()) {
    if (was_interrupted()) break;
    recordings.push_back(list_recording(std::move(file)));
  }
  return recordings;
}

void print_recordings(const std::vector<ListedRecording>& recordings, model::RowSink& sink) {
  sink.begin(kColumns);
  for (const ListedRecording& recording : recordings) {
    Row row;
    row.add(recording.file.k8s_namespace);
    row.add(recording.file.pod);
    row.add(std::uint64_t{recording.file.number});
    row.add_time(recording.started_ns);
    row.add_time(recording.ended_ns);
    row.add_or_null(recording.end_reason);
    row.add(recording.calls);
    row.add(recording.lost);
    row.add(recording.file.bytes);
    row.add(recording.file.path);
    row.add_or_null(recording.error);
    if (!row.print(sink)) break;
  }
  sink.end();
}

int run_recordings(const RecordingsOptions& options) {
  const auto format = cli::parse_query_format(options.format);
  if (!format)
    return say({"read --format", options.format, "not a format", "table, csv, json or markdown"});
  note_ctrl_c();
  const auto recordings = list_recordings(options.directory);
  if (!recordings) return say(recordings.error());
  if (was_interrupted()) {
    std::cerr << "ingero recordings: interrupted\n";
    return kInterruptedStatus;
  }
  const bool to_terminal = cli::is_terminal(STDOUT_FILENO);
  const auto output = cli::make_query_output(
      {*format, to_terminal, to_terminal && cli::wants_colour(STDOUT_FILENO)},
      [](std::string_view text) { return cli::write_all(STDOUT_FILENO, text).has_value(); });
  print_recordings(*recordings, *output);
  return 0;
}

}  // namespace ingero::app
