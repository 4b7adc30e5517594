// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "model/functions.h"
#include "model/row_sink.h"
#include "record/recorder.h"
#include "record/recording.h"

namespace ingero::record {

/// A folder of one test.
class TestFolder {
 public:
  TestFolder() {
    char name[] = "/tmp/ingero-record-XXXXXX";
    path_ = ::mkdtemp(name);
  }
  ~TestFolder() { std::filesystem::remove_all(path_); }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline std::uint16_t function_id(std::string_view symbol) {
  for (const auto& function : model::api_functions())
    if (function.symbol == symbol) return function.id;
  ADD_FAILURE() << "no row for " << symbol;
  return 0;
}

inline call_event nccl_call(std::string_view symbol = "ncclAllReduce") {
  call_event event{};
  event.header.kind = EVENT_CALL;
  event.header.tgid = 812;
  event.header.tid = 815;
  event.header.time_ns = 1'000'000;
  event.header.process_start_ns = 77;
  event.header.cgroup_id = 4242;
  event.duration_ns = 12'345;
  event.comm = 0x7f123400;
  event.comm_id_hash = 0x00abcdef01234567;
  event.count = 1 << 20;
  event.bytes = 4 << 20;
  event.sequence = 9;
  event.rank = 3;
  event.nranks = 8;
  event.function = function_id(symbol);
  event.datatype = 7;
  event.group_depth = 1;
  return event;
}

inline call_event cuda_call(std::string_view symbol = "cudaMemcpyAsync") {
  call_event event = nccl_call(symbol);
  event.comm = event.comm_id_hash = event.count = event.sequence = 0;
  event.rank = RANK_UNKNOWN;
  event.nranks = 0;
  event.direction = COPY_H2D;
  event.bytes = 1536;
  event.result = 2;
  return event;
}

/// Results as text: columns, then rows; NULL as "NULL".
class TextRows : public model::RowSink {
 public:
  void begin(const std::vector<std::string>& names) override { columns = names; }
  bool row(std::span<const model::Value> values) override {
    std::vector<std::string> row;
    for (const model::Value& value : values)
      row.emplace_back(value.kind == model::Value::Kind::kNull ? "NULL" : value.text);
    rows.push_back(row);
    return true;
  }
  void end() override {}

  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
};

inline std::vector<std::vector<std::string>> query(const std::vector<std::string>& files,
                                                   const std::string& sql) {
  const auto recording = Recording::open(files);
  if (!recording) {
    ADD_FAILURE() << recording.error().message();
    return {};
  }
  TextRows rows;
  const auto done = run_sql(*recording, sql, rows, {});
  if (!done) ADD_FAILURE() << done.error().message;
  return rows.rows;
}

inline std::string value(const std::string& file, const std::string& sql) {
  const auto rows = query({file}, sql);
  return rows.empty() || rows[0].empty() ? "(none)" : rows[0][0];
}

inline RecorderOptions options_for(const std::string& path) {
  RecorderOptions options;
  options.path = path;
  options.facts = {"host-a", "6.1", "x86_64", "test", "session", ""};
  options.container_of = [](std::uint64_t cgroup) {
    return ContainerNames{"team", "trainer-0", "cgroup-" + std::to_string(cgroup)};
  };
  return options;
}

}  // namespace ingero::record
