/* SPDX-License-Identifier: Apache-2.0 */
/* Calls made while another one is open, on other stacks or on none that anybody expects; see call_tally.h.
 * signal          a signal handler on the same stack, inside a call
 * signal_above    the same on an alternate stack that lies higher
 * coroutine_above a coroutine is left inside a call; its caller, on a higher stack, calls meanwhile
 * coroutine_below the caller is inside a call and enters a coroutine, on a lower stack, that calls
 * coroutines      two coroutines that leave each other inside calls, the later one ending last
 * jump_deeper     calls left by longjmp; then others from deeper frames that leave the old slots alone
 * jump_up         calls left by longjmp; then others from a frame a little higher
 * jump_library    calls left by longjmp; then others that a traced library makes by itself, from frames that
 *                 write over the old ones */
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "call_tally.h"
#include "stubs/nccl_abi.h"
#include "stubs/stub_control.h"

#define ROUNDS 20
#define INNER_CALLS 3
#define STACK_SIZE (256 << 10)

typedef int copy_fn(void*, const void*, size_t, int);

static copy_fn *copy, *driver_copy;
static stub_set_hook_fn* set_hook;

/* A call with `hook` inside of it. */
static void outer_copy(stub_hook_fn* hook) {
  set_hook(hook, NULL);
  tell("cudaMemcpy", "h2d", 1 << 20, copy(NULL, NULL, 1 << 20, 1));
}

static void inner_copies(void) {
  int i;

  for (i = 0; i < INNER_CALLS; i++) tell("cudaMemcpy", "d2h", 4096, copy(NULL, NULL, 4096, 2));
}

/* Counted, but whether they succeed is not looked at: that would need a return probe. */
static void inner_copies_on_another_stack(void) {
  int i;

  for (i = 0; i < INNER_CALLS; i++) {
    copy(NULL, NULL, 4096, 2);
    tell_unreturned("cudaMemcpy", "d2h", 1);
  }
}

/* ---- signals ---------------------------------------------------------------------------------- */

static void raise_one(void* argument) {
  (void)argument;
  raise(SIGUSR1);
}

static void on_signal(int number) {
  (void)number;
  inner_copies();
}

static void on_signal_above(int number) {
  (void)number;
  inner_copies_on_another_stack();
}

static void with_signals(void (*handler)(int), int flags) {
  struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
  int i;

  if (sigaction(SIGUSR1, &action, NULL) != 0) exit(3);
  for (i = 0; i < ROUNDS; i++) {
    outer_copy(raise_one);
    outer_copy(NULL);
  }
}

/* The alternate stack is a part of this frame, so every call below is lower. */
static void signal_above(void) {
  char memory[32 << 10];
  stack_t stack = {.ss_sp = memory, .ss_size = sizeof(memory)}, none = {.ss_flags = SS_DISABLE};

  if (sigaltstack(&stack, NULL) != 0) exit(3);
  with_signals(on_signal_above, SA_ONSTACK);
  if (sigaltstack(&none, NULL) != 0) exit(3);
}

/* ---- coroutines ------------------------------------------------------------------------------- */

static ucontext_t home, first, second;

static void make_coroutine(ucontext_t* context, char* stack, void (*run)(void)) {
  if (getcontext(context) != 0) exit(3);
  context->uc_stack.ss_sp = stack;
  context->uc_stack.ss_size = STACK_SIZE;
  context->uc_link = &home;
  makecontext(context, run, 0);
}

static char* low_stacks(int count) {
  char* memory = mmap(NULL, (size_t)count * STACK_SIZE, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

  if (memory == MAP_FAILED) exit(3);
  return memory;
}

static void go_home(void* argument) {
  (void)argument;
  swapcontext(&first, &home);
}

static void run_outer(void) { outer_copy(go_home); }

static void coroutine_above(void) {
  char* stack = low_stacks(1);
  int i;

  for (i = 0; i < ROUNDS; i++) {
    make_coroutine(&first, stack, run_outer);
    swapcontext(&home, &first);
    inner_copies_on_another_stack();
    swapcontext(&home, &first);
    outer_copy(NULL);
  }
}

static void enter_first(void* argument) {
  (void)argument;
  swapcontext(&home, &first);
}

static void coroutine_below(void) {
  char* stack = low_stacks(1);
  int i;

  for (i = 0; i < ROUNDS; i++) {
    make_coroutine(&first, stack, inner_copies_on_another_stack);
    outer_copy(enter_first);
    outer_copy(NULL);
  }
}

static void to_second(void* argument) {
  (void)argument;
  swapcontext(&first, &second);
}

static void to_first(void* argument) {
  (void)argument;
  swapcontext(&second, &first);
}

static void run_first(void) {
  outer_copy(to_second);
  swapcontext(&first, &second);
}

static void run_second(void) {
  set_hook(to_first, NULL);
  copy(NULL, NULL, 4096, 2);
  tell_unreturned("cudaMemcpy", "d2h", 1);
}

/* The first one's call ends while the second one's, which began later, is open. */
static void coroutines(void) {
  char* stacks = low_stacks(2);
  int i;

  for (i = 0; i < ROUNDS; i++) {
    make_coroutine(&first, stacks + STACK_SIZE * (i & 1), run_first);
    make_coroutine(&second, stacks + STACK_SIZE * (~i & 1), run_second);
    swapcontext(&home, &first);
    outer_copy(NULL);
  }
}

/* ---- longjmp ---------------------------------------------------------------------------------- */

static stub_set_jump_fn* set_jump;
static jmp_buf back;

static __attribute__((noinline)) void left_copy(void) {
  set_jump(&back);
  copy(NULL, NULL, 4096, 1);
}

/* Calls below a buffer that nobody writes: what lay there before, stays. */
static __attribute__((noinline)) void copies_below(size_t size) {
  char hole[size];

  __asm__ volatile("" : : "r"(hole) : "memory"); /* it is there, and nobody writes it */
  inner_copies();
  driver_copy(NULL, NULL, 4096, 2);
  tell("cuMemcpyDtoH_v2", "d2h", 4096, 0);
}

static __attribute__((noinline)) void left_copy_below(int depth) {
  char frame[64];

  __asm__ volatile("" : : "r"(frame) : "memory");
  if (depth) left_copy_below(depth - 1);
  else left_copy();
}

static void jump_deeper(void) {
  static int i; /* in no register that longjmp brings back */

  for (i = 0; i < ROUNDS; i++) {
    if (setjmp(back) == 0) {
      left_copy_below(8);
    } else {
      tell_unreturned("cudaMemcpy", "h2d", 1);
      copies_below(i & 1 ? 2048 : 65536);
      outer_copy(NULL);
    }
  }
}

static void jump_up(void) {
  static int i;

  for (i = 0; i < ROUNDS; i++) {
    if (setjmp(back) == 0) {
      left_copy_below(8);
    } else {
      tell_unreturned("cudaMemcpy", "h2d", 1);
      inner_copies();
    }
  }
}

typedef int torch_all_reduce_fn(void*, size_t, int, ncclComm_t);

static __attribute__((noinline)) void library_calls_below(torch_all_reduce_fn* reduce,
                                                          ncclComm_t comm) {
  char written[4096];
  int i;

  memset(written, 1, sizeof(written));
  __asm__ volatile("" : : "r"(written) : "memory");
  for (i = 0; i < INNER_CALLS; i++) tell("ncclAllReduce", "", 4000, reduce(NULL, 1000, 7, comm));
}

static void jump_library(void) {
  static ncclComm_t comm;
  static torch_all_reduce_fn* reduce;
  static int i;
  ncclUniqueId id;

  memset(&id, 1, sizeof(id));
  reduce = (torch_all_reduce_fn*)symbol(nccl, "torch_all_reduce");
  tell("ncclCommInitRank", "", 0, FUNCTION(nccl, ncclCommInitRank)(&comm, 4, id, 0));
  for (i = 0; i < ROUNDS; i++) {
    if (setjmp(back) == 0) {
      left_copy_below(8);
    } else {
      tell_unreturned("cudaMemcpy", "h2d", 1);
      library_calls_below(reduce, comm);
    }
  }
}

static void with_signal(void) { with_signals(on_signal, 0); }

static const struct {
  const char* name;
  void (*run)(void);
} scenarios[] = {
    {"signal", with_signal},
    {"signal_above", signal_above},
    {"coroutine_above", coroutine_above},
    {"coroutine_below", coroutine_below},
    {"coroutines", coroutines},
    {"jump_deeper", jump_deeper},
    {"jump_up", jump_up},
    {"jump_library", jump_library},
};

int main(int argc, char** argv) {
  const char* scenario = tally_begin(argc, argv);
  size_t i;

  copy = (copy_fn*)symbol(cudart, "cudaMemcpy");
  driver_copy = (copy_fn*)symbol(cuda, "cuMemcpyDtoH_v2");
  set_hook = (stub_set_hook_fn*)symbol(cudart, "stub_set_hook");
  set_jump = (stub_set_jump_fn*)symbol(cudart, "stub_set_jump");
  for (i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++) {
    if (strcmp(scenario, scenarios[i].name) != 0) continue;
    scenarios[i].run();
    tally_end(argv);
    return 0;
  }
  return 2;
}
