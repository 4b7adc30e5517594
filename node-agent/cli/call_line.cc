// SPDX-License-Identifier: Apache-2.0
#include "cli/call_line.h"

#include <fmt/compile.h>

#include <algorithm>

#include "base/text.h"
#include "cli/container_name.h"
#include "model/functions.h"

namespace ingero::cli {
namespace {

using model::ApiFunction;
using model::ApiShape;

constexpr std::int64_t kNsPerSecond = 1'000'000'000;
constexpr std::int64_t kSecondsPerDay = 86'400;

void append(fmt::memory_buffer& out, std::string_view text) {
  out.append(text.data(), text.data() + text.size());
}

/// What a call_event means, by the table of functions.
struct Meaning {
  const ApiFunction* function = nullptr;  ///< nullptr: recorded by a newer agent
  ApiShape shape;
  bool copy = false;
  bool nccl = false;
  bool collective = false;
  bool point_to_point = false;
};

Meaning meaning_of(const call_event& event) {
  Meaning meaning;
  meaning.function = model::find_api_function(event.function);
  if (meaning.function == nullptr) return meaning;
  meaning.shape = model::decode_cookie(meaning.function->cookie);
  meaning.copy = meaning.function->family == API_CUDA_COPY;
  meaning.nccl = meaning.function->source == API_SOURCE_NCCL;
  meaning.collective = meaning.function->family == API_NCCL_COLLECTIVE;
  const std::string_view op = model::op_name(*meaning.function);
  meaning.point_to_point = op == "SEND" || op == "RECV";
  return meaning;
}

/// Copies nearly every text in one go: ids and paths have nothing to escape.
void append_json_text(fmt::memory_buffer& out, std::string_view text) {
  const bool plain = std::all_of(text.begin(), text.end(), [](char c) {
    return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
  });
  append(out, plain ? text : std::string_view(escape_json(text)));
}

void append_function(fmt::memory_buffer& out, const call_event& event, const Meaning& meaning) {
  if (meaning.function != nullptr) {
    append(out, meaning.function->symbol);
  } else {
    fmt::format_to(fmt::appender(out), FMT_COMPILE("function_{}"), event.function);
  }
}

/// `"name":value,` or `"name":null,`
template <typename Number>
void append_number_or_null(fmt::memory_buffer& out, std::string_view name, Number value,
                           bool known) {
  if (known) {
    fmt::format_to(fmt::appender(out), FMT_COMPILE("\"{}\":{},"), name, value);
  } else {
    fmt::format_to(fmt::appender(out), FMT_COMPILE("\"{}\":null,"), name);
  }
}

/// `"name":"0x7f..",` or `"name":"",`
void append_pointer(fmt::memory_buffer& out, std::string_view name, std::uint64_t value,
                    bool known) {
  if (known) {
    fmt::format_to(fmt::appender(out), FMT_COMPILE("\"{}\":\"{:#x}\","), name, value);
  } else {
    fmt::format_to(fmt::appender(out), FMT_COMPILE("\"{}\":\"\","), name);
  }
}

/// The fields from timestamp to communicator.
void append_json_identity(fmt::memory_buffer& out, const call_event& event, const Meaning& meaning,
                          std::int64_t unix_ns, std::string_view container) {
  const std::string_view op = meaning.function ? model::op_name(*meaning.function) : "UNKNOWN";
  fmt::format_to(
      fmt::appender(out),
      FMT_COMPILE("{{\"timestamp_ns\":{},\"duration_ns\":{},\"op\":\"{}\",\"function\":\""),
      unix_ns, event.duration_ns, op);
  append_function(out, event, meaning);
  fmt::format_to(fmt::appender(out), FMT_COMPILE("\",\"pid\":{},\"tid\":{},\"container\":\""),
                 event.header.tgid, event.header.tid);
  append_json_text(out, container);
  if (event.comm_id_hash != 0) {
    fmt::format_to(fmt::appender(out), FMT_COMPILE("\",\"comm_id_hash\":\"{:016x}\","),
                   event.comm_id_hash);
  } else {
    append(out, "\",\"comm_id_hash\":\"\",");
  }
  append_number_or_null(out, "rank", event.rank, event.rank >= 0 && meaning.nccl);
  append_number_or_null(out, "nranks", event.nranks, event.nranks != 0);
}

const char* utc_time(std::int64_t unix_ns, char (&text)[16]) {
  const std::int64_t seconds = unix_ns / kNsPerSecond % kSecondsPerDay;
  const auto end = fmt::format_to_n(text, sizeof(text) - 1, FMT_COMPILE("{:02}:{:02}:{:02}.{:06}"),
                                    seconds / 3600, seconds / 60 % 60, seconds % 60,
                                    unix_ns % kNsPerSecond / 1000);
  *end.out = '\0';
  return text;
}

std::string_view kind_of_data(const call_event& event, const Meaning& meaning) {
  if (meaning.copy) return model::direction_label(event.direction);
  if (meaning.collective) return model::nccl_datatype_name(event.datatype);
  return "-";
}

void append_text_communicator(fmt::memory_buffer& out, const call_event& event) {
  if (event.rank >= 0 && event.nranks != 0) {
    fmt::format_to(fmt::appender(out), FMT_COMPILE("  rank {}/{}"), event.rank, event.nranks);
  } else if (event.comm != 0) {
    append(out, "  rank ?");
  }
  if (event.comm_id_hash != 0) {  // the upper half tells communicators apart well enough
    fmt::format_to(fmt::appender(out), FMT_COMPILE("  comm {:08x}"), event.comm_id_hash >> 32);
  }
}

}  // namespace

std::string_view call_text_header() {
  return "TIME (UTC)           PID      TID  CONTAINER     FUNCTION                       ELEMENTS"
         "  TYPE             BYTES  RESULT                   TOOK\n";
}

void append_call_text(fmt::memory_buffer& out, const call_event& event, std::int64_t unix_ns,
                      std::string_view container) {
  const Meaning meaning = meaning_of(event);
  char time[16];
  fmt::format_to(fmt::appender(out), FMT_COMPILE("{}  {:>7}  {:>7}  {:<12}  "),
                 utc_time(std::max<std::int64_t>(unix_ns, 0), time), event.header.tgid,
                 event.header.tid, short_container(escape_terminal(container), kContainerWidth));
  const std::size_t name_at = out.size();
  append_function(out, event, meaning);
  const std::size_t name_size = out.size() - name_at;
  const bool sized = meaning.copy || meaning.collective;
  const api_source source = meaning.function ? meaning.function->source : API_SOURCE_NONE;
  fmt::format_to(fmt::appender(out), FMT_COMPILE("{:{}}  {:>13}  {:<10}  {:>10}  {:<20}  {:>7}"),
                 "", name_size < 24 ? 24 - name_size : 0,
                 meaning.collective ? format_count(event.count) : "-", kind_of_data(event, meaning),
                 sized ? format_bytes(static_cast<double>(event.bytes)) : "-",
                 model::result_name(source, event.result), format_duration_ns(event.duration_ns));
  if (meaning.nccl) append_text_communicator(out, event);
  out.push_back('\n');
}

void append_call_json(fmt::memory_buffer& out, const call_event& event, std::int64_t unix_ns,
                      std::string_view container) {
  const Meaning meaning = meaning_of(event);
  append_json_identity(out, event, meaning, unix_ns, container);
  fmt::format_to(
      fmt::appender(out),
      FMT_COMPILE(
          "\"count\":{},\"datatype\":\"{}\",\"bytes\":{},\"result\":{},\"direction\":\"{}\","),
      event.count, meaning.collective ? model::nccl_datatype_name(event.datatype) : "", event.bytes,
      event.result, meaning.copy ? model::direction_label(event.direction) : "");
  append_pointer(out, "comm", event.comm, event.comm != 0);
  append_pointer(out, "stream", event.stream, meaning.shape.stream != 0);
  fmt::format_to(fmt::appender(out), FMT_COMPILE("\"sequence\":{},\"group_depth\":{},"),
                 event.sequence, event.group_depth);
  const bool has_peer = meaning.shape.peer != 0;
  append_number_or_null(out, "peer", event.peer, has_peer && meaning.point_to_point);
  append_number_or_null(out, "root", event.peer, has_peer && !meaning.point_to_point);
  fmt::format_to(fmt::appender(out),
                 FMT_COMPILE("\"reduce_op\":\"{}\",\"process_start_ns\":{},\"cgroup_id\":{}}}\n"),
                 meaning.shape.redop != 0 ? model::nccl_redop_name(event.redop) : "",
                 event.header.process_start_ns, event.header.cgroup_id);
}

}  // namespace ingero::cli
