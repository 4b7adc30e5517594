/* SPDX-License-Identifier: Apache-2.0 */
/* map_files READY_FILE FILE...: maps one page of each FILE executable, writes its pid to READY_FILE and
 * stays until it is told to end. Never executes what it maps. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

static int map_file(const char* path) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  void* memory;

  if (fd < 0) {
    perror(path);
    return -1;
  }
  memory = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
  close(fd);
  if (memory == MAP_FAILED) {
    perror(path);
    return -1;
  }
  return 0;
}

int main(int argc, char** argv) {
  FILE* ready;
  int i;

  if (argc < 3) {
    fprintf(stderr, "map_files READY_FILE FILE...\n");
    return 2;
  }
  for (i = 2; i < argc; i++) {
    if (map_file(argv[i]) != 0) return 3;
  }
  ready = fopen(argv[1], "w");
  if (!ready) return 3;
  fprintf(ready, "%d\n", getpid());
  fclose(ready);
  for (;;) pause();
}
