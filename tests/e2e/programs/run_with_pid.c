/* SPDX-License-Identifier: Apache-2.0 */
/* run_with_pid PID COMMAND...: runs COMMAND as process PID, which must be free (clone3 with set_tid, root).
 * Exit status: the command's; 77 when the kernel does not do it; 75 when PID is taken. */
#include <errno.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char** argv) {
  struct clone_args args;
  pid_t wanted, child;
  int status;

  if (argc < 3) {
    fprintf(stderr, "run_with_pid PID COMMAND...\n");
    return 2;
  }
  wanted = (pid_t)strtol(argv[1], NULL, 10);
  memset(&args, 0, sizeof(args));
  args.exit_signal = SIGCHLD;
  args.set_tid = (uint64_t)(uintptr_t)&wanted;
  args.set_tid_size = 1;
  child = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
  if (child < 0) {
    perror("run_with_pid: clone3");
    return errno == EEXIST ? 75 : 77;
  }
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execvp(argv[2], argv + 2);
    perror(argv[2]);
    _exit(127);
  }
  if (waitpid(child, &status, 0) != child) return 3;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
