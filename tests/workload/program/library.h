// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dlfcn.h>

#include <string>

namespace ingero::workload {

// A function of a library opened at run time; `pointer` is null where the library lacks it.
template <class Signature>
struct Function {
  Signature* pointer;
  const char* name;      // what the tally calls it
  bool aliased = false;  // called by its pncclX name
};

// How the kernel names the file behind a library, from two sources that differ under overlayfs.
struct FileIdentity {
  std::string stat_device, maps_device;
  unsigned long long stat_inode = 0, maps_inode = 0;
};

// An opened shared library; never closed, as its probes and threads live as long as the process.
class Library {
 public:
  Library() = default;
  // An empty path gives an empty library. Exits with a message where the file can't be loaded.
  explicit Library(const std::string& path);

  explicit operator bool() const { return handle_ != nullptr; }
  const std::string& path() const { return path_; }
  void* symbol(const char* name) const { return handle_ ? dlsym(handle_, name) : nullptr; }
  FileIdentity identity() const;

  template <class Signature>
  Function<Signature> function(const char* name) const {
    return {reinterpret_cast<Signature*>(symbol(name)), name};
  }

 private:
  std::string path_;
  void* handle_ = nullptr;
};

}  // namespace ingero::workload

// The type comes from the declaration, so that a wrong argument does not compile.
#define WORKLOAD_FUNCTION(library, name) (library).function<decltype(name)>(#name)
