// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/unique_fd.h"
#include "discover/library_image.h"

namespace ingero::testing {

/// A stub library of tests/workload, loaded into this process and inspected.
class StubLibrary {
 public:
  /// Exits the program with a message when the file can't be loaded: nothing could be tested.
  static StubLibrary load(const std::string& path);

  const discover::LibraryImage& image() const { return image_; }
  int fd() const { return fd_.get(); }
  const std::string& path() const { return path_; }

  /// The row and the place of an exported function; aborts when it has none.
  const discover::ProbePoint& point(const std::string& symbol) const;

  /// The exported function itself.
  template <typename Function>
  Function* function(const std::string& symbol) const {
    return reinterpret_cast<Function*>(address(symbol));
  }

 private:
  StubLibrary() = default;
  void* address(const std::string& symbol) const;

  std::string path_;
  UniqueFd fd_;
  discover::LibraryImage image_;
  void* handle_ = nullptr;
};

}  // namespace ingero::testing
