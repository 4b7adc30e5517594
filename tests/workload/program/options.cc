// SPDX-License-Identifier: Apache-2.0
#include "program/options.h"

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>

namespace ingero::workload {
namespace {

using Setter = std::function<void(const std::string&)>;

Setter text(std::string& target) {
  return [&target](const std::string& value) { target = value; };
}

Setter real(double& target) {
  return [&target](const std::string& value) { target = std::stod(value); };
}

template <class Integer>
Setter integer(Integer& target) {
  return [&target](const std::string& value) {
    target = static_cast<Integer>(std::stoll(value, nullptr, 0));
  };
}

std::map<std::string, Setter> setters(Options& o) {
  return {
      {"--nccl", text(o.nccl)},
      {"--cudart", text(o.cudart)},
      {"--cuda", text(o.cuda)},
      {"--scenario", text(o.scenario)},
      {"--threads", integer(o.threads)},
      {"--calls", integer(o.calls)},
      {"--seconds", real(o.seconds)},
      {"--rate", real(o.rate)},
      {"--bytes", integer(o.bytes)},
      {"--nranks", integer(o.nranks)},
      {"--rank", integer(o.rank)},
      {"--device", integer(o.device)},
      {"--processes", integer(o.processes)},
      {"--concurrency", integer(o.concurrency)},
      {"--id-file", text(o.id_file)},
      {"--comm-name", text(o.comm_name)},
      {"--tally", text(o.tally)},
      {"--ready-file", text(o.ready_file)},
      {"--start-file", text(o.start_file)},
      {"--hold-file", text(o.hold_file)},
      {"--hold", real(o.hold)},
      {"--touch", text(o.touch)},
      {"--dlopen-after", real(o.dlopen_after)},
      {"--generation", integer(o.generation)},
      {"--tally-fd", integer(o.tally_fd)},
  };
}

[[noreturn]] void usage(const std::string& why) {
  std::fprintf(stderr, "ingero_workload: %s; the options are:", why.c_str());
  Options none;
  for (const auto& [name, setter] : setters(none)) std::fprintf(stderr, " %s", name.c_str());
  std::fprintf(stderr, "\n");
  std::exit(2);
}

}  // namespace

Options parse_options(int argc, char** argv) {
  Options options;
  auto table = setters(options);
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    const auto found = table.find(name);
    if (found == table.end()) usage("unknown option " + name);
    if (i + 1 >= argc) usage("no value for " + name);
    try {
      found->second(argv[i + 1]);
    } catch (const std::exception&) {
      usage("bad value for " + name + ": " + argv[i + 1]);
    }
    if (name == "--generation" || name == "--tally-fd") continue;
    options.arguments.push_back(name);
    options.arguments.emplace_back(argv[i + 1]);
  }
  return options;
}

}  // namespace ingero::workload
