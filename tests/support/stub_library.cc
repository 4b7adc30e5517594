// SPDX-License-Identifier: Apache-2.0
#include "stub_library.h"

#include <dlfcn.h>
#include <fcntl.h>

#include <cstdio>
#include <cstdlib>

namespace ingero::testing {
namespace {

[[noreturn]] void die(const std::string& why) {
  std::fprintf(stderr, "stub library: %s\n", why.c_str());
  std::abort();
}

}  // namespace

StubLibrary StubLibrary::load(const std::string& path) {
  StubLibrary library;
  library.path_ = path;
  library.fd_ = UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!library.fd_) die("cannot open " + path);
  auto image = discover::inspect_library(library.fd_.get(), path);
  if (!image || !*image) die("no traced functions in " + path);
  library.image_ = std::move(**image);
  library.handle_ = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library.handle_ == nullptr) die(::dlerror());
  return library;
}

const discover::ProbePoint& StubLibrary::point(const std::string& symbol) const {
  for (const discover::ProbePoint& point : image_.points) {
    if (point.function->symbol == symbol) return point;
  }
  die("no probe point for " + symbol);
}

void* StubLibrary::address(const std::string& symbol) const {
  void* address = ::dlsym(handle_, symbol.c_str());
  if (address == nullptr) die(symbol + " is not exported");
  return address;
}

}  // namespace ingero::testing
