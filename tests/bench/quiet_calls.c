/* SPDX-License-Identifier: Apache-2.0 */
/* quiet_calls LIBCUDART LIBCUDA PROCESSES DONE_FILE: children that call each copy function in each direction once
 * and sleep for good. The workload's own processes look for a file every few milliseconds, which is not quiet. */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <unistd.h>

typedef int (*copy)(void*, void*, size_t, int, void*);
typedef int (*copy_2d)(void*, size_t, void*, size_t, size_t, size_t, int, void*);
typedef int (*wait_for)(void*);

static const char* const kCopies[] = {"cudaMemcpy", "cudaMemcpyAsync", "cudaMemcpy_ptds",
                                      "cudaMemcpyAsync_ptsz"};
static const char* const kCopies2d[] = {"cudaMemcpy2D", "cudaMemcpy2DAsync", "cudaMemcpy2D_ptds",
                                        "cudaMemcpy2DAsync_ptsz"};
static const char* const kDriver[] = {"cuMemcpyHtoD_v2", "cuMemcpyDtoH_v2", "cuMemcpyDtoD_v2",
                                      "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2"};
static const char* const kWaits[] = {"cudaStreamSynchronize"};
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void* find(void* library, const char* name) {
  void* function = dlsym(library, name);
  if (!function) fprintf(stderr, "quiet_calls: no %s\n", name);
  return function;
}

static void call_all(void* cudart, void* cuda) {
  char from[64], to[64];
  size_t i;
  int kind;

  memset(from, 0, sizeof(from));
  for (i = 0; i < COUNT(kCopies) + COUNT(kCopies2d); i++) {
    const int flat = i < COUNT(kCopies);
    void* function = find(cudart, flat ? kCopies[i] : kCopies2d[i - COUNT(kCopies)]);
    for (kind = 0; kind < 5 && function; kind++) {
      if (flat) ((copy)function)(to, from, sizeof(to), kind, NULL);
      else ((copy_2d)function)(to, 8, from, 8, 8, 8, kind, NULL);
    }
  }
  for (i = 0; i < COUNT(kDriver); i++) {
    void* function = find(cuda, kDriver[i]);
    if (function) ((copy)function)(to, from, sizeof(to), 0, NULL);
  }
  for (i = 0; i < COUNT(kWaits); i++) {
    void* function = find(cudart, kWaits[i]);
    if (function) ((wait_for)function)(NULL);
  }
}

int main(int argc, char** argv) {
  void *cudart, *cuda;
  int done[2], i, processes;
  char byte = 0;

  if (argc != 5 || pipe(done) != 0) return 2;
  cudart = dlopen(argv[1], RTLD_NOW);
  cuda = dlopen(argv[2], RTLD_NOW);
  processes = atoi(argv[3]);
  if (!cudart || !cuda) {
    fprintf(stderr, "quiet_calls: %s\n", dlerror());
    return 3;
  }
  sleep(1); /* until there are probes */
  for (i = 0; i < processes; i++) {
    if (fork() != 0) continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    call_all(cudart, cuda);
    if (write(done[1], &byte, 1) != 1) return 4;
    while (1) pause();
  }
  for (i = 0; i < processes; i++)
    if (read(done[0], &byte, 1) != 1) return 4;
  fclose(fopen(argv[4], "w"));
  while (1) pause();
}
