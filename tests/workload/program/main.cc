// SPDX-License-Identifier: Apache-2.0
// ingero_workload: makes NCCL and CUDA calls and says how many it made.
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>

#include "program/scenarios.h"

namespace ingero::workload {
namespace {

const std::map<std::string, void (*)(Context&)>& scenarios() {
  static const std::map<std::string, void (*)(Context&)> table = {
      {"mixed", scenario_mixed},     {"datatypes", scenario_datatypes},
      {"copies", scenario_copies},   {"allreduce", scenario_allreduce},
      {"memcpy", scenario_memcpy},   {"inits", scenario_inits},
      {"nested", scenario_nested},   {"errors", scenario_errors},
      {"fork", scenario_fork},       {"forkstorm", scenario_forkstorm},
      {"exec", scenario_exec},       {"threads", scenario_threads},
      {"longjmp", scenario_longjmp}, {"seccomp", scenario_seccomp},
      {"real", scenario_real},
  };
  return table;
}

int own_pid;  // asked for before the calls: getpid is a system call as well
std::uint64_t started_ns;
std::string libraries_json;  // made before the calls: a seccomp filter forbids open

void sleep_seconds(double seconds) {
  const std::uint64_t end = monotonic_ns() + static_cast<std::uint64_t>(seconds * 1e9);
  while (!stop_requested() && monotonic_ns() < end) {
    const timespec pause{0, 5'000'000};
    nanosleep(&pause, nullptr);
  }
}

void wait_for_file(const std::string& path) {
  while (!path.empty() && !stop_requested() && access(path.c_str(), F_OK) != 0)
    sleep_seconds(0.005);
}

// Appears at once with its content, so that a waiting test never reads half of it.
void write_ready_file(const std::string& path) {
  if (path.empty()) return;
  const std::string fresh = path + ".new";
  std::ofstream(fresh) << getpid() << "\n";
  if (std::rename(fresh.c_str(), path.c_str()) != 0) std::perror("ingero_workload: --ready-file");
}

void load_libraries(Context& context) {
  // The driver first: a runtime finds it by soname among what is loaded.
  context.cuda = Library(context.options.cuda);
  context.cudart = Library(context.options.cudart);
  context.nccl = Library(context.options.nccl);
  if (auto* control = Context::control(context.nccl); control && context.options.device)
    control->device = context.options.device;
  for (const Library* library : {&context.nccl, &context.cudart, &context.cuda}) {
    if (!*library) continue;
    const FileIdentity id = library->identity();
    libraries_json += (libraries_json.empty() ? "" : ",") + std::string("{\"path\":\"") +
                      library->path() + "\",\"stat_device\":\"" + id.stat_device +
                      "\",\"stat_inode\":" + std::to_string(id.stat_inode) + ",\"maps_device\":\"" +
                      id.maps_device + "\",\"maps_inode\":" + std::to_string(id.maps_inode) + "}";
  }
}

// The order in which a test and the program meet: ready, start, then late loading, then calls.
void prepare(Context& context) {
  const Options& options = context.options;
  const bool first_image = options.generation == 0;
  if (first_image && !options.touch.empty() &&
      utimensat(AT_FDCWD, options.touch.c_str(), nullptr, 0) != 0)
    std::perror("ingero_workload: --touch");
  const bool late = first_image && options.dlopen_after > 0;
  if (!late) load_libraries(context);
  if (first_image) {
    write_ready_file(options.ready_file);
    wait_for_file(options.start_file);
  }
  if (late) {
    sleep_seconds(options.dlopen_after);
    load_libraries(context);
  }
}

int run(const Options& options) {
  const auto scenario = scenarios().find(options.scenario);
  if (scenario == scenarios().end()) {
    std::fprintf(stderr, "ingero_workload: unknown scenario %s\n", options.scenario.c_str());
    return 2;
  }
  Tally tally(options.tally_fd);
  Context context;
  context.options = options;
  context.tally = &tally;
  if (options.generation == 0) tally.add_process();
  own_pid = getpid();
  stop_on_signals();
  prepare(context);
  started_ns = unix_ns();
  if (options.seconds > 0)
    context.deadline_ns = monotonic_ns() + static_cast<std::uint64_t>(options.seconds * 1e9);
  scenario->second(context);
  const int result = open_result(options.tally);
  write_all(result, result_json(context));
  hold(options);
  return 0;
}

}  // namespace

int open_result(const std::string& path) {
  if (path == "-") return STDOUT_FILENO;
  const int descriptor = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor < 0) {
    std::perror("ingero_workload: open --tally");
    std::exit(3);
  }
  return descriptor;
}

void write_all(int descriptor, const std::string& text) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t written = write(descriptor, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) _exit(3);
    done += static_cast<std::size_t>(written);
  }
}

std::string result_json(const Context& context) {
  std::string out;
  out += "{\"pid\":" + std::to_string(own_pid) + ",\"scenario\":\"" + context.options.scenario +
         "\",\"start_unix_ns\":" + std::to_string(started_ns) +
         ",\"end_unix_ns\":" + std::to_string(unix_ns()) + ",\"libraries\":[" + libraries_json +
         "],";
  context.tally->append_json(out);
  return out + "}\n";
}

void hold(const Options& options) {
  if (options.hold > 0) sleep_seconds(options.hold);
  wait_for_file(options.hold_file);
}

}  // namespace ingero::workload

int main(int argc, char** argv) {
  return ingero::workload::run(ingero::workload::parse_options(argc, argv));
}
