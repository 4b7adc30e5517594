/* SPDX-License-Identifier: Apache-2.0 */
/* hostile READY_FILE ATTACK [ARGUMENT]...: what an unprivileged neighbour can do to the agent. Writes its pid to
 * READY_FILE once the attack is on, goes on until it is told to end, and prints how often it did it.
 *
 *   comms LIBNCCL              one thread makes and destroys communicators
 *   hung LIBNCCL               makes communicators whose memory hangs whoever reads it
 *   threads COUNT MAPPINGS     threads with a table of files of their own, in a process with many mappings
 *   mappings FILE COUNT PROCESSES  each process maps FILE executable so many times
 *   remap FILE                 maps FILE executable and unmaps it
 *   execs LIBRARY              the process, which maps LIBRARY, executes itself again and again
 *   late LIBRARY FOLDER CALLS  ends its main thread; another one loads LIBRARY when FOLDER/load is there, makes
 *                              its calls when FOLDER/call is there, and then makes FOLDER/done
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stubs/nccl_abi.h"

static volatile sig_atomic_t stop;
static const char* ready_file;
static char** arguments; /* behind the name of the attack */

static void on_signal(int number) {
  (void)number;
  stop = 1;
}

static void fail(const char* what) {
  perror(what);
  _exit(3);
}

static void tell_ready(void) {
  char fresh[4096];
  FILE* file;

  snprintf(fresh, sizeof(fresh), "%s.new", ready_file);
  file = fopen(fresh, "w");
  if (!file) fail(fresh);
  fprintf(file, "%d\n", getpid());
  fclose(file);
  if (rename(fresh, ready_file) != 0) fail(ready_file);
}

static void wait_for_end(void) {
  while (!stop) usleep(5000);
}

static long number(int index) { return arguments[index] ? atol(arguments[index]) : 0; }

static void* map_page(int fd) {
  void* page = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);

  if (page == MAP_FAILED) fail("mmap");
  return page;
}

static int open_file(const char* path) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);

  if (fd < 0) fail(path);
  return fd;
}

static void* function(const char* library, const char* name) {
  void* handle = dlopen(library, RTLD_NOW);
  void* symbol = handle ? dlsym(handle, name) : NULL;

  if (!symbol) {
    fprintf(stderr, "%s\n", dlerror());
    _exit(3);
  }
  return symbol;
}

static long attack_comms(void) {
  ncclResult_t (*init)(ncclComm_t*, int, ncclUniqueId, int) = (ncclResult_t(*)(
      ncclComm_t*, int, ncclUniqueId, int))function(arguments[0], "ncclCommInitRank");
  ncclResult_t (*destroy)(ncclComm_t) =
      (ncclResult_t(*)(ncclComm_t))function(arguments[0], "ncclCommDestroy");
  ncclUniqueId id;
  ncclComm_t comm;
  long done = 0;

  memset(&id, 1, sizeof(id));
  tell_ready();
  for (; !stop; done++) {
    if (init(&comm, 4, id, 1) == 0) destroy(comm);
  }
  return done;
}

/* Pages that nobody brings, as those of a file system that has stopped answering. */
static void* map_hung(size_t size) {
  struct uffdio_api api = {.api = UFFD_API};
  struct uffdio_register range = {.mode = UFFDIO_REGISTER_MODE_MISSING};
  int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
  void* memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

  if (memory == MAP_FAILED) fail("mmap");
  range.range.start = (uintptr_t)memory;
  range.range.len = size;
  if (fd < 0 || ioctl(fd, UFFDIO_API, &api) != 0 || ioctl(fd, UFFDIO_REGISTER, &range) != 0)
    fail("userfaultfd");
  return memory;
}

static long attack_hung(void) {
  ncclResult_t (*init)(ncclComm_t*, int, ncclUniqueId, int) = (ncclResult_t(*)(
      ncclComm_t*, int, ncclUniqueId, int))function(arguments[0], "ncclCommInitRank");
  ncclComm_t* handle = function(arguments[0], "hostile_handle");
  ncclUniqueId id;
  ncclComm_t comm;
  long done = 0;

  memset(&id, 1, sizeof(id));
  *handle = map_hung(2 << 20);
  tell_ready();
  for (; !stop; done++) {
    init(&comm, 4, id, 1);
    usleep(10000);
  }
  return done;
}

static void* idle_thread(void* unused) {
  if (unshare(CLONE_FILES) != 0) fail("unshare");
  wait_for_end();
  return unused;
}

static long attack_threads(void) {
  long threads = number(0), mappings = number(1), i;
  pthread_attr_t attributes;
  pthread_t thread;

  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 65536);
  for (i = 0; i < threads; i++)
    if (pthread_create(&thread, &attributes, idle_thread, NULL) != 0) fail("pthread_create");
  /* Two kinds of protection in turns: neighbours do not become one mapping. */
  for (i = 0; i < mappings; i++)
    if (mmap(NULL, 4096, i % 2 ? PROT_READ : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) ==
        MAP_FAILED)
      fail("mmap");
  tell_ready();
  wait_for_end();
  return threads;
}

static long attack_mappings(void) {
  long count = number(1), processes = number(2), i, j;
  int fd = open_file(arguments[0]);

  for (i = 0; i < processes; i++) {
    if (i + 1 < processes) {
      pid_t child = fork();

      if (child < 0) fail("fork");
      if (child > 0) continue;
      prctl(PR_SET_PDEATHSIG, SIGKILL);
    }
    for (j = 0; j < count; j++) map_page(fd);
    if (i + 1 < processes)
      for (;;) pause();
  }
  tell_ready();
  wait_for_end();
  return processes;
}

static long attack_remap(void) {
  int fd = open_file(arguments[0]);
  long done = 0;

  tell_ready();
  for (; !stop; done++) munmap(map_page(fd), 4096);
  return done;
}

static void attack_execs(char** argv) {
  map_page(open_file(arguments[0]));
  if (access(ready_file, F_OK) != 0) tell_ready();
  if (!stop) execv("/proc/self/exe", argv);
}

static void wait_for(const char* name) {
  char path[4096];

  snprintf(path, sizeof(path), "%s/%s", arguments[1], name);
  while (access(path, F_OK) != 0) usleep(5000);
}

static void* late_thread(void* unused) {
  ncclResult_t (*init)(ncclComm_t*, int, ncclUniqueId, int);
  char done[4096];
  ncclUniqueId id;
  ncclComm_t comm;
  long i;

  memset(&id, 1, sizeof(id));
  wait_for("load");
  init = (ncclResult_t(*)(ncclComm_t*, int, ncclUniqueId, int))function(arguments[0],
                                                                        "ncclCommInitRank");
  wait_for("call");
  for (i = 0; i < number(2); i++) init(&comm, 4, id, 1);
  snprintf(done, sizeof(done), "%s/done", arguments[1]);
  close(open(done, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  for (;;) pause();
  return unused;
}

static void attack_late(void) {
  pthread_t thread;

  if (pthread_create(&thread, NULL, late_thread, NULL) != 0) fail("pthread_create");
  tell_ready();
  pthread_exit(NULL);
}

int main(int argc, char** argv) {
  struct sigaction action = {.sa_handler = on_signal};
  long done = 0;

  if (argc < 4) {
    fprintf(stderr, "hostile READY_FILE ATTACK ARGUMENT...\n");
    return 2;
  }
  ready_file = argv[1];
  arguments = argv + 3;
  if (strcmp(argv[2], "late") == 0) attack_late();
  if (strcmp(argv[2], "execs") == 0) attack_execs(argv);
  sigaction(SIGTERM, &action, NULL);
  if (strcmp(argv[2], "comms") == 0) done = attack_comms();
  else if (strcmp(argv[2], "hung") == 0) done = attack_hung();
  else if (strcmp(argv[2], "threads") == 0) done = attack_threads();
  else if (strcmp(argv[2], "mappings") == 0) done = attack_mappings();
  else if (strcmp(argv[2], "remap") == 0) done = attack_remap();
  else return 2;
  printf("%ld\n", done);
  return 0;
}
