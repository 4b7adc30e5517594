// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "model/identity.h"

namespace ingero::attribute {

/// A directory that goes with the test.
class TemporaryTree {
 public:
  TemporaryTree() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "ingero-cgroup-XXXXXX").string();
    root_ = ::mkdtemp(pattern.data());
  }
  ~TemporaryTree() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  TemporaryTree(const TemporaryTree&) = delete;
  TemporaryTree& operator=(const TemporaryTree&) = delete;

  std::string path(const std::string& below) const { return root_.string() + below; }
  void write(const std::string& file, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(path(file)).parent_path());
    std::ofstream(path(file)) << text;
  }
  model::CgroupId make(const std::string& directory) const {
    std::filesystem::create_directories(path(directory));
    return id_of(directory);
  }
  model::CgroupId id_of(const std::string& directory) const {
    struct stat status {};
    EXPECT_EQ(::stat(path(directory).c_str(), &status), 0) << directory;
    return model::CgroupId{status.st_ino};
  }

 private:
  std::filesystem::path root_;
};

}  // namespace ingero::attribute
