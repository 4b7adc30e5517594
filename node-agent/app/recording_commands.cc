// SPDX-License-Identifier: Apache-2.0
// `ingero report` and `ingero export`.
#include "app/recording_commands.h"

#include <fcntl.h>
#include <unistd.h>

#include <iostream>

#include "app/patience.h"
#include "base/unique_fd.h"
#include "cli/page_output.h"
#include "cli/terminal.h"
#include "record/report.h"
#include "record/time_line.h"

namespace ingero::app {
namespace {

constexpr int kCannotRun = 2;
constexpr std::size_t kFlushBytes = 256 << 10;

int say(const char* command, const Error& error) {
  if (was_interrupted()) {
    std::cerr << "ingero " << command << ": interrupted\n";
    return kInterruptedStatus;
  }
  std::cerr << "ingero " << command << ": " << error.message() << "\n";
  return kCannotRun;
}

/// Where the result goes: stdout, or a file.
Result<UniqueFd> open_output(const std::string& path) {
  UniqueFd fd(path.empty() ? ::dup(STDOUT_FILENO)
                           : ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd) return fail_errno("open output", path);
  return fd;
}

Result<std::string> render(const ReportOptions& options) {
  const auto recording = record::Recording::open(options.files);
  if (!recording) return fail(recording.error());
  Patience patience;
  const auto page = record::make_report(
      *recording, [&](std::uint64_t calls) { return patience.watch(calls, "calls read"); });
  patience.clear();
  if (!page) return fail(page.error());
  if (options.html) return cli::render_page_html(*page);
  const bool terminal = options.out.empty() && cli::is_terminal(STDOUT_FILENO);
  return cli::render_page(*page, terminal ? cli::terminal_size(STDOUT_FILENO).width : 0,
                          terminal && cli::wants_colour(STDOUT_FILENO));
}

Status write_time_line(const record::Recording& recording, int fd) {
  Patience patience;
  std::string waiting;
  Status written;
  const auto flush = [&] {
    written = cli::write_all(fd, waiting);
    waiting.clear();
    return written.has_value();
  };
  const auto done = record::export_time_line(
      recording,
      [&](std::string_view part) {
        waiting += part;
        return waiting.size() < kFlushBytes || flush();
      },
      [&](std::uint64_t calls) { return patience.watch(calls, "calls written"); });
  patience.clear();
  if (!written) return written;
  if (!done) return done;
  return cli::write_all(fd, waiting);
}

}  // namespace

int run_report(const ReportOptions& options) {
  note_ctrl_c();
  const auto text = render(options);
  if (!text) return say("report", text.error());
  const auto output = open_output(options.out);
  if (!output) return say("report", output.error());
  const auto written = cli::write_all(output->get(), *text);
  return written ? 0 : say("report", written.error());
}

int run_export(const ExportOptions& options) {
  if (options.format != "perfetto")
    return say("export", {"read --format", options.format, "not a format", "write perfetto"});
  note_ctrl_c();
  const auto recording = record::Recording::open(options.files);
  if (!recording) return say("export", recording.error());
  const auto output = open_output(options.out);
  if (!output) return say("export", output.error());
  const auto written = write_time_line(*recording, output->get());
  return written ? 0 : say("export", written.error());
}

}  // namespace ingero::app
