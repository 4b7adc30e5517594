/* SPDX-License-Identifier: Apache-2.0 */
/* mapping_cost map FILE: nanoseconds of this thread's CPU time for a mapping of it that is kept, executable: the
 * least of some rounds. mapping_cost exec COUNT PROGRAM: microseconds of CPU time for running it once. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 20
#define MAPPINGS 1000

static double now_ns(clockid_t clock) {
  struct timespec time;
  clock_gettime(clock, &time);
  return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static double map_once(int fd) {
  static void* mapped[MAPPINGS];
  const double start = now_ns(CLOCK_THREAD_CPUTIME_ID);
  double took;
  int i;

  for (i = 0; i < MAPPINGS; i++)
    mapped[i] = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
  took = (now_ns(CLOCK_THREAD_CPUTIME_ID) - start) / MAPPINGS;
  for (i = 0; i < MAPPINGS; i++) munmap(mapped[i], 4096);
  return took;
}

static int map(const char* path) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  double least = 1e18;
  int i;

  if (fd < 0) return 3;
  for (i = 0; i < ROUNDS; i++) {
    const double took = map_once(fd);
    if (took < least) least = took;
    usleep(20000); /* what is noticed late is looked at meanwhile */
  }
  printf("%.0f\n", least);
  return 0;
}

static double used_us(int who) {
  struct rusage used;
  getrusage(who, &used);
  return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e6 +
         (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

static int run(int count, char* program) {
  char *const argv[] = {program, NULL}, *const environment[] = {NULL};
  const double start = used_us(RUSAGE_SELF);
  pid_t child;
  int i, status;

  for (i = 0; i < count; i++) {
    if (posix_spawn(&child, program, NULL, NULL, argv, environment) != 0) return 3;
    if (waitpid(child, &status, 0) != child || status != 0) return 4;
  }
  printf("%.1f\n", (used_us(RUSAGE_SELF) - start + used_us(RUSAGE_CHILDREN)) / count);
  return 0;
}

int main(int argc, char** argv) {
  if (argc == 3 && strcmp(argv[1], "map") == 0) return map(argv[2]);
  if (argc == 4 && strcmp(argv[1], "exec") == 0) return run(atoi(argv[2]), argv[3]);
  return 2;
}
