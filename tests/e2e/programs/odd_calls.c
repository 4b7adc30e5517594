/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that no honest program makes, with a tally of their own in the form of ingero_workload's:
 *   odd_calls SCENARIO NCCL_SO CUDART_SO CUDA_SO TALLY [READY_FILE START_FILE]
 * forged          arguments that lie: sizes, types, kinds, pointers
 * thread_in_group threads that end between ncclGroupStart and ncclGroupEnd
 * killed          a child that is killed in the middle of a call, others before and after it
 * greedy          takes all it can get of the tables that containers share, and keeps it until it is killed */
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "call_tally.h"
#include "stubs/nccl_abi.h"
#include "stubs/stub_control.h"

#define GREEDY_COMMS 9000
#define GREEDY_STREAMS 9000
#define GREEDY_CODES 6000

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
  tell_unsized("cudaMemcpy", "h2d", copy(NULL, NULL, 1ULL << 63, 1));
  tell_unsized("cudaMemcpy", "h2d", copy(NULL, NULL, SIZE_MAX, 1));
  tell("cudaMemcpy", "unknown", 4096, copy(NULL, NULL, 4096, 77));
  tell("cudaMemcpy", "unknown", 4096, copy(NULL, NULL, 4096, -1));
  tell("cudaMemcpy", "unknown", 4096, copy(NULL, NULL, 4096, 0x10001));
  tell_unsized("cudaMemcpy2D", "h2d", copy_2d(NULL, 0, NULL, 0, 1ULL << 40, 1ULL << 40, 1));
  tell_unsized("cudaMemcpy2D", "h2d", copy_2d(NULL, 0, NULL, 0, 1ULL << 32, 1ULL << 32, 1));
  tell_unsized("cudaMemcpy3D", "unknown", copy_3d(NULL));
  tell_unsized("cudaMemcpy3D", "unknown", copy_3d((void*)-64));
  tell_unsized("cudaMemcpy3DPeer", "d2d", copy_3d_peer(NULL));
  tell_unsized("cuMemcpy2D_v2", "unknown", driver_2d(NULL));
  tell_unsized("cuMemcpy3D_v2", "unknown", driver_3d((void*)(1ULL << 63)));
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

/* Communicators, streams that nobody waits for, error codes that nobody knows. */
static void greedy(void) {
  struct stub_control* control = symbol(cudart, "stub_control");
  int (*copy)(void*, const void*, size_t, int) = symbol(cudart, "cudaMemcpy");
  __typeof__(&ncclAllReduce) reduce = FUNCTION(nccl, ncclAllReduce);
  ncclComm_t comm = make_comm(4);
  int i;

  for (i = 0; i < GREEDY_COMMS; i++) make_comm(4);
  for (i = 0; i < GREEDY_STREAMS; i++)
    tell("ncclAllReduce", "", 4000, reduce(NULL, NULL, 1000, 7, 0, comm, (void*)(0x1000L + i)));
  control->every = 1;
  for (i = 0; i < GREEDY_CODES; i++) {
    control->result = 1000 + i;
    copy(NULL, NULL, 4096, 1);
  }
}

int main(int argc, char** argv) {
  const char* scenario = tally_begin(argc, argv);

  if (strcmp(scenario, "forged") == 0) {
    forged_collectives();
    forged_inits();
    forged_copies();
  } else if (strcmp(scenario, "thread_in_group") == 0) {
    threads_in_group();
  } else if (strcmp(scenario, "killed") == 0) {
    killed();
  } else if (strcmp(scenario, "greedy") == 0) {
    greedy();
    tally_end(argv);
    pause();
  } else {
    return 2;
  }
  tally_end(argv);
  return 0;
}
