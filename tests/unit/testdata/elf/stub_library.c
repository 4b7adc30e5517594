/* SPDX-License-Identifier: Apache-2.0 */
/* Source of stub_library.elf, a library as gcc and ld write it:
 * gcc -shared -nostdlib -O1 -fPIC -fcf-protection -Wl,-soname,libnccl.so.2,--hash-style=both,--build-id=none \
 *     -Wl,-z,noseparate-code -o stub_library.elf stub_library.c */
int ncclAllReduce(void) { return 1; }
int ncclGroupStart(void) { return 2; }
int pncclGroupEnd(void) { return 3; }
int ncclGroupEnd(void) __attribute__((weak, alias("pncclGroupEnd")));
int ncclSend = 7;
extern int ncclRecv(void);
int ncclGetVersion(int* version) {
  if (!version) return 4;
  *version = 22809;
  return ncclRecv() & 0;
}
