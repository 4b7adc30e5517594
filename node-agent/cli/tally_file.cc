// SPDX-License-Identifier: Apache-2.0
#include "cli/tally_file.h"

#include <nlohmann/json.hpp>

#include "cli/call_name.h"

namespace ingero::cli {
namespace {

using nlohmann::json;

tl::unexpected<Error> bad_tally(std::string cause) {
  return fail(Error{"read a workload's tally", "", std::move(cause), "", 0});
}

/// A missing number is 0; anything but a number that is not negative is an error.
Result<std::uint64_t> number(const json& row, const char* name) {
  const auto found = row.find(name);
  if (found == row.end()) return 0;
  if (!found->is_number_unsigned()) return bad_tally(fmt::format("\"{}\" is not a count", name));
  return found->get<std::uint64_t>();
}

Result<TallyLine> line_of(const json& row, const std::string& container) {
  if (!row.is_object()) return bad_tally("a row is not an object");
  const auto function = row.find("function");
  if (function == row.end() || !function->is_string())
    return bad_tally("a row has no \"function\"");
  TallyLine line;
  line.container = container;
  line.operation = operation_of_symbol(function->get_ref<const std::string&>());
  const auto direction = row.find("direction");
  if (direction != row.end() && direction->is_string())
    line.direction = direction->get<std::string>();
  const Result<std::uint64_t> calls = number(row, "calls");
  const Result<std::uint64_t> unreturned = number(row, "unreturned");
  const Result<std::uint64_t> errors = number(row, "errors");
  const Result<std::uint64_t> bytes = number(row, "bytes");
  for (const auto* field : {&calls, &unreturned, &errors, &bytes}) {
    if (!*field) return fail(field->error());
  }
  line.calls = *calls + *unreturned;
  line.errors = *errors;
  line.bytes = *bytes;
  return line;
}

}  // namespace

Result<std::vector<TallyLine>> parse_tally(std::string_view text, const std::string& container) {
  const json tally = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!tally.is_object()) return bad_tally("it is not a JSON object");
  auto rows = tally.find("functions");
  if (rows == tally.end()) rows = tally.find("calls");
  if (rows == tally.end() || !rows->is_array()) return bad_tally("there is no array \"functions\"");
  std::vector<TallyLine> lines;
  for (const json& row : *rows) {
    Result<TallyLine> line = line_of(row, container);
    if (!line) return fail(line.error());
    lines.push_back(std::move(*line));
  }
  return lines;
}

}  // namespace ingero::cli
