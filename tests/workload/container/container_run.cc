// SPDX-License-Identifier: Apache-2.0
// container_run: starts a command as a container runtime would, as far as a tracer can see it:
// cgroup, mount and pid namespace, overlay root. The network stays the host's.
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "container/cgroups.h"
#include "container/rootfs.h"

namespace ingero::container {
namespace {

struct Options {
  std::string cgroup, lower, pid_file, work_parent = "/tmp";
  bool own_root = true, pid_namespace = false, keep_cgroup = false;
  std::vector<Share> shares;
  std::vector<std::string> environment;
  char** command = nullptr;
};

[[noreturn]] void usage() {
  std::fprintf(stderr,
               "container_run --cgroup PATH (--lower DIR | --no-root) [--share HOSTDIR:DIR]...\n"
               "  [--env NAME=VALUE]... [--pid-ns] [--pid-file FILE] [--work-parent DIR]\n"
               "  [--keep-cgroup] -- COMMAND [ARGUMENT]...\n");
  std::exit(2);
}

Share parse_share(const std::string& text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos || colon + 1 >= text.size() || text[colon + 1] != '/') usage();
  return {text.substr(0, colon), text.substr(colon + 1)};
}

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc && o.command == nullptr; i++) {
    const std::string name = argv[i];
    const auto value = [&]() -> std::string {
      if (i + 1 >= argc) usage();
      return argv[++i];
    };
    if (name == "--cgroup") o.cgroup = value();
    else if (name == "--lower") o.lower = value();
    else if (name == "--share") o.shares.push_back(parse_share(value()));
    else if (name == "--env") o.environment.push_back(value());
    else if (name == "--pid-file") o.pid_file = value();
    else if (name == "--work-parent") o.work_parent = value();
    else if (name == "--no-root") o.own_root = false;
    else if (name == "--pid-ns") o.pid_namespace = true;
    else if (name == "--keep-cgroup") o.keep_cgroup = true;
    else if (name == "--") o.command = argv + i + 1;
    else usage();
  }
  const bool root_told = o.own_root != o.lower.empty();
  if (o.cgroup.empty() || o.cgroup[0] != '/' || !root_told || !o.command || !*o.command) usage();
  return o;
}

pid_t forward_to = 0;

void forward_signal(int number) {
  if (forward_to > 0) kill(forward_to, number);
}

void forward_signals(pid_t child) {
  forward_to = child;
  struct sigaction action {};
  action.sa_handler = forward_signal;
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) sigaction(number, &action, nullptr);
}

int wait_status(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return 125;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Written by a process outside of the pid namespace, so the pid is the host's.
void write_pid_file(const std::string& path, pid_t pid) {
  if (path.empty()) return;
  const std::string fresh = path + ".new";
  std::ofstream(fresh) << pid << "\n";
  if (std::rename(fresh.c_str(), path.c_str()) != 0) std::perror("container_run: --pid-file");
}

[[noreturn]] void run_command(const Options& options, const std::string& work_dir) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // Here and not in the waiting parent: pivot_root moves everyone in the mount namespace.
  if (options.own_root && unshare(CLONE_NEWNS) != 0) {
    std::perror("container_run: unshare the mounts");
    _exit(125);
  }
  if (options.own_root && !enter_root({options.lower, work_dir, options.shares})) _exit(125);
  for (const auto& variable : options.environment) {
    const std::size_t equals = variable.find('=');
    if (equals == std::string::npos) continue;
    setenv(variable.substr(0, equals).c_str(), variable.c_str() + equals + 1, 1);
  }
  execvp(options.command[0], options.command);
  std::fprintf(stderr, "container_run: run %s: %s\n", options.command[0], std::strerror(errno));
  _exit(errno == ENOENT ? 127 : 126);
}

// Lives in the cgroup; with a pid namespace of its own, its only child is that namespace's init.
[[noreturn]] void run_inside(const Options& options, const Cgroups& cgroups,
                             const std::string& work_dir) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (!cgroups.enter()) _exit(125);
  if (!options.pid_namespace) {
    write_pid_file(options.pid_file, getpid());
    run_command(options, work_dir);
  }
  if (unshare(CLONE_NEWPID) != 0) {
    std::perror("container_run: unshare the pids");
    _exit(125);
  }
  const pid_t child = fork();
  if (child == 0) run_command(options, work_dir);
  if (child < 0) _exit(125);
  write_pid_file(options.pid_file, child);
  forward_signals(child);
  _exit(wait_status(child));
}

int run(const Options& options) {
  Cgroups cgroups(options.cgroup, options.keep_cgroup);
  if (!cgroups.create()) return 125;
  std::string work_dir = options.work_parent + "/container-XXXXXX";
  if (options.own_root && mkdtemp(work_dir.data()) == nullptr) {
    std::perror("container_run: make the work directory");
    return 125;
  }
  const pid_t child = fork();
  if (child == 0) run_inside(options, cgroups, work_dir);
  int status = 125;
  if (child > 0) {
    forward_signals(child);
    status = wait_status(child);
  }
  // The mounts went with the namespace; what is left is the empty mount point.
  if (options.own_root) rmdir(work_dir.c_str());
  return status;
}

}  // namespace
}  // namespace ingero::container

int main(int argc, char** argv) {
  return ingero::container::run(ingero::container::parse(argc, argv));
}
