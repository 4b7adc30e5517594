// SPDX-License-Identifier: Apache-2.0
// load_each OBJECT: loads each program of a BPF object by itself, as each attach method would, and says what the
// kernel's verifier thinks of it. One line a program, the end of the verifier's log where it refuses; last the
// line "LOADED n of m". Exit status 1: one or more were refused.
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PROGRAMS 128
#define LOG_LINES 14

static char text[1 << 20];
static size_t used;

static int keep(enum libbpf_print_level level, const char* format, va_list arguments) {
  if (level == LIBBPF_DEBUG || used > sizeof(text) - 70000) return 0;
  used += vsnprintf(text + used, sizeof(text) - used, format, arguments);
  if (used >= sizeof(text)) used = sizeof(text) - 1;
  return 0;
}

static int is_uprobe(const struct bpf_program* program) {
  return !strncmp(bpf_program__section_name(program), "uprobe", 6);
}

/* The attach type decides what a program may return. */
static void load_alone(struct bpf_object* object, const char* name) {
  struct bpf_program* program;
  size_t length = strlen(name);
  int session = length > 8 && !strcmp(name + length - 8, "_session");

  bpf_object__for_each_program(program, object) {
    bpf_program__set_autoload(program, !strcmp(bpf_program__name(program), name));
    if (is_uprobe(program)) bpf_program__set_expected_attach_type(program, session ? 57 : 0);
  }
}

static void print_end_of_log(void) {
  char* at = text + strlen(text);
  int lines;

  for (lines = 0; lines < LOG_LINES && at > text; lines++)
    while (at > text && *--at != '\n')
      ;
  printf("%s\n", at);
}

static int load(const char* path, const char* name) {
  struct bpf_object* object;
  int error;

  used = 0;
  text[0] = 0;
  object = bpf_object__open(path);
  if (!object) return -errno;
  load_alone(object, name);
  error = bpf_object__load(object);
  bpf_object__close(object);
  return error;
}

int main(int argc, char** argv) {
  static char names[MAX_PROGRAMS][64];
  struct bpf_program* program;
  struct bpf_object* all;
  int count = 0, refused = 0, i, error;

  libbpf_set_print(keep);
  all = argc > 1 ? bpf_object__open(argv[1]) : NULL;
  if (!all) {
    printf("cannot open the object: %s\n%s", strerror(errno), text);
    return 2;
  }
  bpf_object__for_each_program(program, all) if (count < MAX_PROGRAMS)
      snprintf(names[count++], sizeof(names[0]), "%s", bpf_program__name(program));
  for (i = 0; i < count; i++) {
    error = load(argv[1], names[i]);
    printf("%-28s %s\n", names[i], error ? "REFUSED" : "loads");
    if (!error) continue;
    refused++;
    print_end_of_log();
  }
  printf("LOADED %d of %d\n", count - refused, count);
  return refused ? 1 : 0;
}
