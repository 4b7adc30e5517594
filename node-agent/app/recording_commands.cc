// SPDX-License-Identifier: Apache-2.0
// `ingero report` and `ingero export`.
#include "app/recording_commands.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <iostream>

#include "app/patience.h"
#include "base/unique_fd.h"
#include "cli/page_output.h"
#include "cli/terminal.h"
#include "record/recording_copy.h"
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

bool is_stdout(const std::string& path) { return path.empty() || path == "-"; }

bool is_same_file(const std::string& a, const std::string& b) {
  struct stat one {
  }, other{};
  return ::stat(a.c_str(), &one) == 0 && ::stat(b.c_str(), &other) == 0 &&
         one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

/// Where the result goes: stdout, or a file that is none of those that are read.
Result<UniqueFd> open_output(const std::string& path, const std::vector<std::string>& inputs) {
  for (const std::string& input : inputs)
    if (!is_stdout(path) && is_same_file(path, input))
      return fail({"open output", path, "that is the recording itself", "give another name"});
  UniqueFd fd(is_stdout(path)
                  ? ::dup(STDOUT_FILENO)
                  : ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd) return fail_errno("open output", path);
  return fd;
}

/// Half a result must not be taken for one.
void remove_output(const std::string& path) {
  struct stat status {};
  if (!is_stdout(path) && ::lstat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode))
    ::unlink(path.c_str());
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
  const bool terminal = is_stdout(options.out) && cli::is_terminal(STDOUT_FILENO);
  return cli::render_page(*page, terminal ? cli::terminal_size(STDOUT_FILENO).width : 0,
                          terminal && cli::wants_colour(STDOUT_FILENO));
}

using Write = std::function<bool(std::string_view)>;

/// Runs `make` with something that writes to `fd` in large blocks; what the writing said comes first.
Status write_through(int fd, const std::function<Status(const Write&)>& make) {
  std::string waiting;
  Status written;
  const auto flush = [&] {
    written = cli::write_all(fd, waiting);
    waiting.clear();
    return written.has_value();
  };
  const Status made = make([&](std::string_view part) {
    waiting += part;
    return waiting.size() < kFlushBytes || flush();
  });
  if (!written) return written;
  if (!made) return made;
  return cli::write_all(fd, waiting);
}

Status write_time_line(const record::Recording& recording, int fd) {
  Patience patience;
  const Status done = write_through(fd, [&](const Write& write) {
    return record::export_time_line(recording, write, [&](std::uint64_t calls) {
      return patience.watch(calls, "calls written");
    });
  });
  patience.clear();
  return done;
}

/// Folders for a temporary file: where the result goes, where the recording is, and the usual one.
std::vector<std::string> temporary_folders(const ExportOptions& options) {
  const auto folder_of = [](const std::string& path) {
    const std::string folder = std::filesystem::path(path).parent_path().string();
    return folder.empty() ? std::string(".") : folder;
  };
  std::vector<std::string> folders;
  if (!is_stdout(options.out)) folders.push_back(folder_of(options.out));
  folders.push_back(folder_of(options.files.front()));
  folders.emplace_back("/tmp");
  return folders;
}

Status write_copy(const record::Recording& recording, const ExportOptions& options, int fd) {
  Patience patience;
  const Status done = write_through(fd, [&](const Write& write) {
    return record::copy_recording(
        recording, temporary_folders(options), write,
        [&](std::uint64_t bytes) { return patience.watch(bytes, "bytes written"); });
  });
  patience.clear();
  return done;
}

Status check_export(const ExportOptions& options) {
  const bool copy = options.format == "sqlite";
  if (!copy && options.format != "perfetto")
    return fail({"read --format", options.format, "not a format", "write perfetto or sqlite"});
  if (copy && options.files.size() != 1)
    return fail({"copy recording", "", fmt::format("{} files are named", options.files.size()),
                 "copy one after the other"});
  if (copy && is_stdout(options.out) && cli::is_terminal(STDOUT_FILENO))
    return fail({"copy recording", options.files.front(), "stdout is a terminal",
                 "give -o FILE, or send it to a file: > FILE"});
  return {};
}

}  // namespace

int run_report(const ReportOptions& options) {
  note_ctrl_c();
  const auto text = render(options);
  if (!text) return say("report", text.error());
  const auto output = open_output(options.out, options.files);
  if (!output) return say("report", output.error());
  const auto written = cli::write_all(output->get(), *text);
  if (written) return 0;
  remove_output(options.out);
  return say("report", written.error());
}

int run_export(const ExportOptions& options) {
  if (auto status = check_export(options); !status) return say("export", status.error());
  note_ctrl_c();
  const auto recording = record::Recording::open(options.files);
  if (!recording) return say("export", recording.error());
  const auto output = open_output(options.out, options.files);
  if (!output) return say("export", output.error());
  const auto written = options.format == "sqlite" ? write_copy(*recording, options, output->get())
                                                  : write_time_line(*recording, output->get());
  if (written) return 0;
  remove_output(options.out);
  return say("export", written.error());
}

}  // namespace ingero::app
