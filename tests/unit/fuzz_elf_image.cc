// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: the ELF reader and all that inspect_library does with it.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

#include "discover/elf_image.h"
#include "discover/library_image.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const int fd = ::memfd_create("fuzz", MFD_CLOEXEC);
  if (::ftruncate(fd, 0) != 0 || ::pwrite(fd, data, size, 0) != static_cast<ssize_t>(size))
    return -1;
  auto image = ingero::discover::ElfImage::create(fd);
  if (image) {
    const std::string_view names[] = {"ncclAllReduce", "ncclGetVersion", "cudaMemcpy"};
    (void)image->find_in_symtab(names);
    (void)image->section(".rodata");
  }
  (void)ingero::discover::inspect_library(fd, "fuzz");
  return 0;
}
