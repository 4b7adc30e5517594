/* SPDX-License-Identifier: Apache-2.0 */
/* stall_fuse MOUNTPOINT SOURCE READY_FILE: a FUSE file system with one file, "libnccl.so.2", that has SOURCE's
 * content. It answers until READY_FILE.stall is there; from then on it takes requests and answers none.
 * Speaks to /dev/fuse itself; ends at SIGTERM, and with it whatever waits for it. */
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_NODE 2
#define FILE_NAME "libnccl.so.2"
#define MAX_READ (128 << 10)

static int device, source;
static unsigned long long source_size;
static char buffer[MAX_READ + (1 << 16)];

static void answer(const struct fuse_in_header* in, int error, const void* data, size_t size) {
  static char out[sizeof(struct fuse_out_header) + MAX_READ];
  struct fuse_out_header header = {
      .len = sizeof(header) + size, .error = -error, .unique = in->unique};

  memcpy(out, &header, sizeof(header));
  if (size) memcpy(out + sizeof(header), data, size);
  if (write(device, out, header.len) < 0 && errno != ENOENT) perror("answer");
}

static struct fuse_attr attr_of(unsigned long long node) {
  struct fuse_attr attr = {.ino = node, .nlink = 1, .blksize = 4096};

  attr.mode = node == FILE_NODE ? S_IFREG | 0755 : S_IFDIR | 0755;
  attr.size = node == FILE_NODE ? source_size : 0;
  return attr;
}

static void look_up(const struct fuse_in_header* in, const char* name) {
  struct fuse_entry_out entry = {.nodeid = FILE_NODE, .entry_valid = 1, .attr_valid = 1};

  if (strcmp(name, FILE_NAME) != 0) return answer(in, ENOENT, NULL, 0);
  entry.attr = attr_of(FILE_NODE);
  answer(in, 0, &entry, sizeof(entry));
}

static void read_file(const struct fuse_in_header* in, const struct fuse_read_in* request) {
  static char data[MAX_READ];
  size_t size = request->size > MAX_READ ? MAX_READ : request->size;
  ssize_t got = pread(source, data, size, (off_t)request->offset);

  answer(in, got < 0 ? errno : 0, data, got < 0 ? 0 : (size_t)got);
}

static void serve(const struct fuse_in_header* in, const void* body) {
  struct fuse_init_out init = {.major = FUSE_KERNEL_VERSION,
                               .minor = 31,
                               .max_readahead = 0,
                               .max_write = 4096,
                               .max_background = 1,
                               .congestion_threshold = 1};
  struct fuse_attr_out attr = {.attr_valid = 1};
  struct fuse_open_out opened = {.fh = 1};

  switch (in->opcode) {
    case FUSE_INIT: return answer(in, 0, &init, sizeof(init));
    case FUSE_LOOKUP: return look_up(in, body);
    case FUSE_GETATTR: attr.attr = attr_of(in->nodeid); return answer(in, 0, &attr, sizeof(attr));
    case FUSE_OPEN:
    case FUSE_OPENDIR: return answer(in, 0, &opened, sizeof(opened));
    case FUSE_READ: return read_file(in, body);
    case FUSE_RELEASE:
    case FUSE_RELEASEDIR:
    case FUSE_FLUSH: return answer(in, 0, NULL, 0);
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT: return; /* no answer belongs to them */
    default: return answer(in, ENOSYS, NULL, 0);
  }
}

int main(int argc, char** argv) {
  char options[128], stall[4096];
  struct stat info;
  FILE* ready;

  if (argc != 4) {
    fprintf(stderr, "stall_fuse MOUNTPOINT SOURCE READY_FILE\n");
    return 2;
  }
  source = open(argv[2], O_RDONLY | O_CLOEXEC);
  device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
  if (source < 0 || device < 0 || fstat(source, &info) != 0) {
    perror(source < 0 ? argv[2] : "/dev/fuse");
    return 3;
  }
  source_size = (unsigned long long)info.st_size;
  snprintf(stall, sizeof(stall), "%s.stall", argv[3]);
  snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other",
           device);
  if (mount("stall_fuse", argv[1], "fuse", MS_NOSUID | MS_NODEV, options) != 0) {
    perror(argv[1]);
    return 3;
  }
  ready = fopen(argv[3], "w");
  if (!ready) return 3;
  fprintf(ready, "%d\n", getpid());
  fclose(ready);
  for (;;) {
    ssize_t got = read(device, buffer, sizeof(buffer));

    if (got < 0 && (errno == EINTR || errno == ENOENT || errno == EAGAIN)) continue;
    if (got < 0) return errno == ENODEV ? 0 : 4; /* unmounted */
    if (access(stall, F_OK) == 0) continue;      /* taken, and never answered */
    serve((const struct fuse_in_header*)buffer, buffer + sizeof(struct fuse_in_header));
  }
}
