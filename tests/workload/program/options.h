// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ingero::workload {

struct Options {
  std::string nccl, cudart, cuda;
  std::string scenario = "mixed";
  int threads = 1;
  std::uint64_t calls = 0;        // 0: the scenario's own default
  double seconds = 0;             // above 0: run that long, `calls` is ignored
  double rate = 0;                // calls per second and thread, 0: no pause
  std::uint64_t bytes = 1 << 20;  // message size of the tight loops
  int nranks = 8;
  int rank = 0;
  int device = 0;
  int processes = 0;  // of fork and forkstorm, 0: the scenario's own default
  int concurrency = 8;
  std::string id_file;
  std::string comm_name = "workload";
  std::string tally = "-";
  std::string ready_file, start_file, hold_file, touch;
  double dlopen_after = 0;
  double hold = 0;
  // Set by the `exec` scenario for its second image only.
  int generation = 0;
  int tally_fd = -1;

  std::vector<std::string> arguments;  // as given, for exec
};

// Exits with a message on a wrong command line.
Options parse_options(int argc, char** argv);

}  // namespace ingero::workload
