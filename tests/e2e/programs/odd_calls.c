/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that no honest program makes, with a tally of their own in the form of ingero_workload's:
 *   odd_calls SCENARIO NCCL_SO CUDART_SO CUDA_SO TALLY [READY_FILE START_FILE]
 * forged          arguments that lie: sizes, types, kinds, pointers
 * thread_in_group threads that end between ncclGroupStart and ncclGroupEnd
 * killed          a child that is killed in the middle of a call, others before and after it */
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "stubs/nccl_abi.h"
#include "stubs/stub_control.h"

#define MAX_ROWS 64

struct row {
  const char *function, *direction;
  unsigned long long calls, errors, bytes;
  int code;
};

static struct row* rows; /* shared with children; one process at a time adds */
static void *nccl, *cudart, *cuda;

static void* symbol(void* library, const char* name) {
  void* address = dlsym(library, name);

  if (!address) {
    fprintf(stderr, "odd_calls: %s\n", dlerror());
    exit(3);
  }
  return address;
}

#define FUNCTION(library, name) ((__typeof__(&name))symbol(library, #name))

/* One call that returned; `bytes` is what it may count for. */
static int tell(const char* function, const char* direction, unsigned long long bytes, int result) {
  int i;

  for (i = 0; i < MAX_ROWS; i++) {
    if (rows[i].function &&
        (strcmp(rows[i].function, function) != 0 || strcmp(rows[i].direction, direction) != 0))
      continue;
    rows[i].function = function;
    rows[i].direction = direction;
    rows[i].calls++;
    if (result == 0) {
      rows[i].bytes += bytes;
    } else {
      rows[i].errors++;
      rows[i].code = result;
    }
    return result;
  }
  fprintf(stderr, "odd_calls: too many rows\n");
  exit(3);
}

static void write_tally(const char* path) {
  FILE* file = fopen(path, "w");
  int i, length;

  if (!file) exit(3);
  fprintf(file, "{\"pid\":%d,\"functions\":[", getpid());
  for (i = 0; i < MAX_ROWS && rows[i].function; i++) {
    length = (int)strlen(rows[i].function);
    if (strcmp(rows[i].function + length - 3, "_v2") == 0) length -= 3;
    fprintf(file,
            "%s\n{\"function\":\"%s\",\"operation\":\"%.*s\",\"direction\":\"%s\",\"calls\":%llu,"
            "\"errors\":%llu,\"errors_by_code\":{",
            i ? "," : "", rows[i].function, length, rows[i].function, rows[i].direction,
            rows[i].calls, rows[i].errors);
    if (rows[i].errors) fprintf(file, "\"%d\":%llu", rows[i].code, rows[i].errors);
    fprintf(file, "},\"pending_by_code\":{},\"bytes\":%llu,\"unreturned\":0,\"aliased\":0}",
            rows[i].bytes);
  }
  fprintf(file, "],\"comms\":[],\"comms_left_out\":0}\n");
  fclose(file);
}

static ncclComm_t make_comm(int nranks) {
  ncclUniqueId id;
  ncclComm_t comm = NULL;

  memset(&id, nranks, sizeof(id));
  tell("ncclCommInitRank", "", 0, FUNCTION(nccl, ncclCommInitRank)(&comm, nranks, id, 0));
  return comm;
}

/* The next call of the library fails before it looks at its arguments, as the real one does with bad
 * pointers where it can. */
static void refuse_next(void* library, int refuse) {
  struct stub_control* control = symbol(library, "stub_control");

  control->every = refuse ? 1 : 0;
  control->result = refuse ? NCCL_INVALID_ARGUMENT : 0;
}

static void forged_collectives(void) {
  __typeof__(&ncclAllReduce) reduce = FUNCTION(nccl, ncclAllReduce);
  __typeof__(&ncclAllGather) gather = FUNCTION(nccl, ncclAllGather);
  ncclComm_t comm = make_comm(4), many = make_comm(INT_MAX), big = make_comm(1 << 20);
  void* nowhere = (void*)0x10;

  tell("ncclAllReduce", "", 4000, reduce(NULL, NULL, 1000, 7, 0, comm, NULL));
  tell("ncclAllReduce", "", 0, reduce(NULL, NULL, 1ULL << 63, 7, 0, comm, NULL));
  tell("ncclAllReduce", "", 0, reduce(NULL, NULL, SIZE_MAX, 0, 0, comm, NULL));
  tell("ncclAllReduce", "", 0, reduce(NULL, NULL, 1000, 99, 0, comm, NULL));
  tell("ncclAllReduce", "", 0, reduce(NULL, NULL, 1000, -1, 0, comm, NULL));
  tell("ncclAllReduce", "", 0, reduce(nowhere, nowhere, 1000, 7, -5, NULL, nowhere));
  /* Each share is small enough, all ranks' shares together are not. */
  tell("ncclAllGather", "", 0, gather(NULL, NULL, 1ULL << 44, 0, many, NULL));
  tell("ncclAllGather", "", 0, gather(NULL, NULL, 1ULL << 45, 0, big, NULL));
  tell("ncclAllGather", "", 4000, gather(NULL, NULL, 1000, 0, comm, NULL));
}

static void forged_inits(void) {
  ncclComm_t comm = NULL;
  ncclUniqueId id = {{0}};
  void* nowhere = (void*)0x10;

  refuse_next(nccl, 1);
  tell("ncclCommInitRank", "", 0, FUNCTION(nccl, ncclCommInitRank)(nowhere, 4, id, 0));
  tell("ncclCommInitRank", "", 0, FUNCTION(nccl, ncclCommInitRank)(&comm, -1, id, INT_MIN));
  tell("ncclCommInitRankConfig", "", 0,
       FUNCTION(nccl, ncclCommInitRankConfig)(&comm, 4, id, 0, nowhere));
  tell("ncclCommInitRankScalable", "", 0,
       FUNCTION(nccl, ncclCommInitRankScalable)(&comm, 4, 0, INT_MAX, nowhere, nowhere));
  tell("ncclCommInitAll", "", 0, FUNCTION(nccl, ncclCommInitAll)(nowhere, INT_MAX, nowhere));
  tell("ncclCommSplit", "", 0, FUNCTION(nccl, ncclCommSplit)(NULL, 1, 1, nowhere, nowhere));
  refuse_next(nccl, 0);
}

static void forged_copies(void) {
  int (*copy)(void*, const void*, size_t, int) = symbol(cudart, "cudaMemcpy");
  int (*copy_2d)(void*, size_t, const void*, size_t, size_t, size_t, int) =
      symbol(cudart, "cudaMemcpy2D");
  int (*copy_3d)(const void*) = symbol(cudart, "cudaMemcpy3D");
  int (*copy_3d_peer)(const void*) = symbol(cudart, "cudaMemcpy3DPeer");
  int (*driver_2d)(const void*) = symbol(cuda, "cuMemcpy2D_v2");
  int (*driver_3d)(const void*) = symbol(cuda, "cuMemcpy3D_v2");

  tell("cudaMemcpy", "h2d", 4096, copy(NULL, NULL, 4096, 1));
  tell("cudaMemcpy", "h2d", 0, copy(NULL, NULL, 1ULL << 63, 1));
  tell("cudaMemcpy", "h2d", 0, copy(NULL, NULL, SIZE_MAX, 1));
  tell("cudaMemcpy", "unknown", 4096, copy(NULL, NULL, 4096, 77));
  tell("cudaMemcpy", "unknown", 4096, copy(NULL, NULL, 4096, -1));
  tell("cudaMemcpy", "unknown", 4096, copy(NULL, NULL, 4096, 0x10001));
  tell("cudaMemcpy2D", "h2d", 0, copy_2d(NULL, 0, NULL, 0, 1ULL << 40, 1ULL << 40, 1));
  tell("cudaMemcpy2D", "h2d", 0, copy_2d(NULL, 0, NULL, 0, 1ULL << 32, 1ULL << 32, 1));
  tell("cudaMemcpy3D", "unknown", 0, copy_3d(NULL));
  tell("cudaMemcpy3D", "unknown", 0, copy_3d((void*)-64));
  tell("cudaMemcpy3DPeer", "d2d", 0, copy_3d_peer(NULL));
  tell("cuMemcpy2D_v2", "unknown", 0, driver_2d(NULL));
  tell("cuMemcpy3D_v2", "unknown", 0, driver_3d((void*)(1ULL << 63)));
}

static void* thread_in_group(void* argument) {
  ncclComm_t comm = argument, promised = NULL;
  ncclUniqueId id = {{1}};

  tell("ncclGroupStart", "", 0, FUNCTION(nccl, ncclGroupStart)());
  tell("ncclGroupStart", "", 0, FUNCTION(nccl, ncclGroupStart)());
  tell("ncclAllReduce", "", 4000,
       FUNCTION(nccl, ncclAllReduce)(NULL, NULL, 1000, 7, 0, comm, NULL));
  tell("ncclCommInitRank", "", 0, FUNCTION(nccl, ncclCommInitRank)(&promised, 2, id, 1));
  return NULL; /* no ncclGroupEnd: its communicator is never finished */
}

static void threads_in_group(void) {
  ncclComm_t comm = make_comm(4);
  pthread_t thread;
  int i;

  for (i = 0; i < 200; i++) { /* more than ever fit the table of promises, were they kept */
    if (pthread_create(&thread, NULL, thread_in_group, comm) != 0) exit(3);
    pthread_join(thread, NULL);
    tell("ncclAllReduce", "", 4000,
         FUNCTION(nccl, ncclAllReduce)(NULL, NULL, 1000, 7, 0, comm, NULL));
  }
}

static void some_calls(ncclComm_t comm) {
  int i;

  for (i = 0; i < 10; i++)
    tell("ncclAllReduce", "", 4000,
         FUNCTION(nccl, ncclAllReduce)(NULL, NULL, 1000, 7, 0, comm, NULL));
}

static void killed_child(ncclComm_t comm) {
  struct stub_control* control = symbol(nccl, "stub_control");
  struct timespec pause = {.tv_nsec = 200000000};
  unsigned long long* inside =
      mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  pid_t child = fork();

  if (child == 0) {
    some_calls(comm);
    control->busy_ns = 60ULL * 1000000000;
    __atomic_store_n(inside, 1, __ATOMIC_RELEASE);
    FUNCTION(nccl, ncclAllReduce)(NULL, NULL, 1000, 7, 0, comm, NULL);
    _exit(3); /* never reached */
  }
  while (!__atomic_load_n(inside, __ATOMIC_ACQUIRE)) nanosleep(&pause, NULL);
  nanosleep(&pause, NULL);
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
  munmap(inside, 4096);
}

static void killed(void) {
  ncclComm_t comm = make_comm(4);
  int i;

  for (i = 0; i < 3; i++) {
    some_calls(comm);
    killed_child(comm);
    some_calls(comm);
  }
}

static void* load(const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);

  if (!library) {
    fprintf(stderr, "odd_calls: %s\n", dlerror());
    exit(3);
  }
  return library;
}

static void wait_for_start(char** argv) {
  FILE* ready = fopen(argv[6], "w");
  struct timespec pause = {.tv_nsec = 10000000};

  if (!ready) exit(3);
  fprintf(ready, "%d\n", getpid());
  fclose(ready);
  while (access(argv[7], F_OK) != 0) nanosleep(&pause, NULL);
}

int main(int argc, char** argv) {
  if (argc != 6 && argc != 8) {
    fprintf(stderr, "odd_calls SCENARIO NCCL_SO CUDART_SO CUDA_SO TALLY [READY START]\n");
    return 2;
  }
  rows = mmap(NULL, sizeof(*rows) * MAX_ROWS, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
              -1, 0);
  nccl = load(argv[2]);
  cudart = load(argv[3]);
  cuda = load(argv[4]);
  if (argc == 8) wait_for_start(argv);
  if (strcmp(argv[1], "forged") == 0) {
    forged_collectives();
    forged_inits();
    forged_copies();
  } else if (strcmp(argv[1], "thread_in_group") == 0) {
    threads_in_group();
  } else if (strcmp(argv[1], "killed") == 0) {
    killed();
  } else {
    return 2;
  }
  write_tally(argv[5]);
  return 0;
}
