// SPDX-License-Identifier: Apache-2.0
#include "app/query_command.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <iostream>

#include "app/patience.h"
#include "base/text.h"
#include "cli/query_output.h"
#include "cli/terminal.h"
#include "record/recording.h"

namespace ingero::app {
namespace {

constexpr int kWrongSql = 1, kCannotRun = 2;
constexpr std::size_t kMaxSqlBytes = 1 << 20;

int say(const Error& error) {
  std::cerr << "ingero query: " << error.message() << "\n";
  return kCannotRun;
}

Result<std::string> read_all(int fd, const std::string& name) {
  std::string text;
  char buffer[8192];
  while (true) {
    const ssize_t got = ::read(fd, buffer, sizeof(buffer));
    if (got < 0) return fail_errno("read SQL", name);
    if (got == 0) return text;
    text.append(buffer, static_cast<std::size_t>(got));
    if (text.size() > kMaxSqlBytes)
      return fail({"read SQL", name, "more than 1 MiB", "give recordings before the SQL"});
  }
}

bool is_file(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0;
}

struct Request {
  std::vector<std::string> files;
  std::string sql;
};

Result<Request> read_request(const QueryOptions& options) {
  Request request{options.words, ""};
  if (options.schema) return request;
  if (!options.sql_file.empty() && options.sql_file != "-") {
    FILE* file = ::fopen(options.sql_file.c_str(), "re");
    if (file == nullptr) return fail_errno("read SQL", options.sql_file);
    auto sql = read_all(::fileno(file), options.sql_file);
    ::fclose(file);
    if (!sql) return fail(sql.error());
    request.sql = std::move(*sql);
    return request;
  }
  if (options.sql_file.empty() && request.files.size() > 1 && !is_file(request.files.back())) {
    request.sql = std::move(request.files.back());
    request.files.pop_back();
    return request;
  }
  if (cli::is_terminal(STDIN_FILENO)) std::cerr << "SQL, then Ctrl-D:\n";
  auto sql = read_all(STDIN_FILENO, "stdin");
  if (!sql) return fail(sql.error());
  request.sql = std::move(*sql);
  return request;
}

int print_schema(const record::Recording& recording) {
  auto columns = record::read_comments(recording);
  if (!columns) return say(columns.error());
  std::string text;
  for (const record::CommentedColumn& column : *columns) {
    const std::string comment = escape_terminal(column.comment);
    if (column.column.empty())
      text += fmt::format("{}{} ({}): {}\n", text.empty() ? "" : "\n",
                          escape_terminal(column.table), column.type, comment);
    else
      text += fmt::format("  {:<20} {:<8} {}\n", escape_terminal(column.column),
                          escape_terminal(column.type), comment);
  }
  return cli::write_all(STDOUT_FILENO, text) ? 0 : kCannotRun;
}

int run_request(const record::Recording& recording, const Request& request,
                cli::QueryFormat format) {
  Patience patience;
  const bool to_terminal = cli::is_terminal(STDOUT_FILENO);
  const auto output =
      cli::make_query_output({format, to_terminal, to_terminal && cli::wants_colour(STDOUT_FILENO)},
                             [&](std::string_view text) {
                               patience.clear();
                               return cli::write_all(STDOUT_FILENO, text).has_value();
                             });
  const auto done = record::run_sql(recording, request.sql, *output, [&](std::uint64_t rows) {
    return patience.watch(rows, "rows so far");
  });
  patience.clear();
  if (done) return 0;
  if (done.error().interrupted) {
    std::cerr << "ingero query: interrupted\n";
    return kInterruptedStatus;
  }
  std::cerr << "ingero query: "
            << cli::render_sql_error(done.error().message, request.sql, done.error().offset);
  return kWrongSql;
}

}  // namespace

int run_query(const QueryOptions& options) {
  const auto format = cli::parse_query_format(options.format);
  if (!format)
    return say({"read --format", options.format, "not a format", "table, csv, json or markdown"});
  note_ctrl_c();
  const auto request = read_request(options);
  if (!request) return say(request.error());
  if (request->files.empty())
    return say({"open recording", "", "no file is named", "ingero query FILE \"SELECT ...\""});
  const auto recording = record::Recording::open(request->files);
  if (!recording) return say(recording.error());
  return options.schema ? print_schema(*recording) : run_request(*recording, *request, *format);
}

}  // namespace ingero::app
