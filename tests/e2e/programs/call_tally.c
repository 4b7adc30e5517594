/* SPDX-License-Identifier: Apache-2.0 */
#include "call_tally.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MAX_ROWS 64
#define MAX_CODES 8

struct row {
  const char *function, *direction;
  unsigned long long calls, errors, bytes, unreturned, unsized;
  int codes[MAX_CODES];
  unsigned long long of_code[MAX_CODES];
};

static struct row* rows; /* shared with children; one process at a time adds */
void *nccl, *cudart, *cuda;

void* symbol(void* library, const char* name) {
  void* address = dlsym(library, name);

  if (!address) {
    fprintf(stderr, "no symbol: %s\n", dlerror());
    exit(3);
  }
  return address;
}

static struct row* row_of(const char* function, const char* direction) {
  int i;

  for (i = 0; i < MAX_ROWS; i++) {
    if (rows[i].function &&
        (strcmp(rows[i].function, function) != 0 || strcmp(rows[i].direction, direction) != 0))
      continue;
    rows[i].function = function;
    rows[i].direction = direction;
    return &rows[i];
  }
  fprintf(stderr, "too many rows in the tally\n");
  exit(3);
}

static void tell_code(struct row* row, int code) {
  int i;

  for (i = 0; i < MAX_CODES; i++) {
    if (row->of_code[i] && row->codes[i] != code) continue;
    row->codes[i] = code;
    row->of_code[i]++;
    return;
  }
  fprintf(stderr, "too many error codes in the tally\n");
  exit(3);
}

int tell(const char* function, const char* direction, unsigned long long bytes, int result) {
  struct row* row = row_of(function, direction);

  row->calls++;
  if (result == 0) {
    row->bytes += bytes;
  } else {
    row->errors++;
    tell_code(row, result);
  }
  return result;
}

int tell_unsized(const char* function, const char* direction, int result) {
  row_of(function, direction)->unsized += result == 0;
  return tell(function, direction, 0, result);
}

void tell_unreturned(const char* function, const char* direction, unsigned long long calls) {
  row_of(function, direction)->unreturned += calls;
}

static void write_codes(FILE* file, const struct row* row) {
  int i;

  for (i = 0; i < MAX_CODES && row->of_code[i]; i++)
    fprintf(file, "%s\"%d\":%llu", i ? "," : "", row->codes[i], row->of_code[i]);
}

void tally_end(char** argv) {
  FILE* file = fopen(argv[5], "w");
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
    write_codes(file, &rows[i]);
    fprintf(file,
            "},\"pending_by_code\":{},\"bytes\":%llu,\"unreturned\":%llu,\"unsized\":%llu,"
            "\"aliased\":0}",
            rows[i].bytes, rows[i].unreturned, rows[i].unsized);
  }
  fprintf(file, "],\"comms\":[],\"comms_left_out\":0}\n");
  fclose(file);
}

static void* load(const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);

  if (!library) {
    fprintf(stderr, "cannot load: %s\n", dlerror());
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

const char* tally_begin(int argc, char** argv) {
  if (argc != 6 && argc != 8) {
    fprintf(stderr, "%s SCENARIO NCCL_SO CUDART_SO CUDA_SO TALLY [READY START]\n", argv[0]);
    exit(2);
  }
  rows = mmap(NULL, sizeof(*rows) * MAX_ROWS, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
              -1, 0);
  nccl = load(argv[2]);
  cudart = load(argv[3]);
  cuda = load(argv[4]);
  if (argc == 8) wait_for_start(argv);
  return argv[1];
}
