/* SPDX-License-Identifier: Apache-2.0 */
/* overwritten_calls LIBRARY COPIES [READY_FILE]: loads a version of overwritten.S. Of the new one it asks what
 * the functions return; 1: not what they should. Then calls cudaMemcpy so often, writes its pid to READY_FILE
 * and stays until it is told to end. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char** argv) {
  void* library = argc > 2 ? dlopen(argv[1], RTLD_NOW) : NULL;
  int (*copy)(void*, const void*, size_t, int);
  int (*answer)(void);
  long (*state)(long);
  long i;

  if (!library) {
    fprintf(stderr, "overwritten_calls LIBRARY COPIES [READY_FILE]: %s\n",
            argc > 2 ? dlerror() : "");
    return 2;
  }
  answer = (int (*)(void))dlsym(library, "answer");
  state = (long (*)(long))dlsym(library, "state");
  copy = (int (*)(void*, const void*, size_t, int))dlsym(library, "cudaMemcpy");
  if (answer && answer() != 0x11223344) return 1;
  if (state && state(42) != 42) return 1;
  for (i = atol(argv[2]); i > 0; i--) copy(NULL, NULL, 8, 1);
  if (argc < 4) return 0;
  FILE* ready = fopen(argv[3], "w");
  if (!ready) return 2;
  fprintf(ready, "%d\n", getpid());
  fclose(ready);
  for (;;) pause();
}
