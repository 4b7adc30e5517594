// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "discover/safe_open.h"

namespace ingero::discover {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

/// A recorded process 42 with a root of its own and one mapping 1000-2000.
class SafeOpen : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "safe_open.XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    top_ = name;
    fs::create_directories(top_ / "rootfs/lib");
    fs::create_directories(top_ / "proc/42/map_files");
    fs::create_directory_symlink(top_ / "rootfs", top_ / "proc/42/root");
    write(top_ / "rootfs/lib/libnccl.so.2", "inside");
    write(top_ / "secret", "outside");
  }
  void TearDown() override { fs::remove_all(top_); }

  static void write(const fs::path& path, const std::string& text) { std::ofstream(path) << text; }

  Result<UniqueFd> open_in_root(std::string_view path) const {
    return open_mapped_file(42, 0, 0, path, OpenMethod::kProcRoot, (top_ / "proc").string());
  }
  Result<UniqueFd> open_by_map(const fs::path& target) const {
    const fs::path link = top_ / "proc/42/map_files/1000-2000";
    fs::remove(link);
    fs::create_symlink(target, link);
    return open_mapped_file(42, 0x1000, 0x2000, "/lib/x", OpenMethod::kMapFiles,
                            (top_ / "proc").string());
  }
  static std::string text_of(const Result<UniqueFd>& file) {
    if (!file) return "error: " + file.error().message();
    char text[64] = {};
    const ssize_t size = ::read(file->get(), text, sizeof(text) - 1);
    return size < 0 ? "unreadable" : std::string(text, static_cast<std::size_t>(size));
  }

  fs::path top_;
};

TEST_F(SafeOpen, OpensARegularFileBelowTheRoot) {
  const auto file = open_in_root("/lib/libnccl.so.2");
  EXPECT_EQ(text_of(file), "inside");
  EXPECT_EQ(::fcntl(file->get(), F_GETFL) & O_ACCMODE, O_RDONLY);
  EXPECT_NE(::fcntl(file->get(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST_F(SafeOpen, SymlinksAndDotDotStayInside) {
  fs::create_symlink("/secret", top_ / "rootfs/lib/absolute");
  fs::create_symlink("../../secret", top_ / "rootfs/lib/relative");
  EXPECT_EQ(open_in_root("/lib/absolute").error().code, ENOENT);
  EXPECT_EQ(open_in_root("/lib/relative").error().code, ENOENT);
  EXPECT_EQ(open_in_root("/../secret").error().code, ENOENT);
  write(top_ / "rootfs/secret", "the container's own");
  EXPECT_EQ(text_of(open_in_root("/lib/absolute")), "the container's own");
  EXPECT_EQ(text_of(open_in_root("/lib/relative")), "the container's own");
  EXPECT_EQ(text_of(open_in_root("/../../secret")), "the container's own");
}

TEST_F(SafeOpen, MagicLinksAreRefused) {
  const auto file = open_mapped_file(::getpid(), 0, 0, "/proc/self/exe", OpenMethod::kProcRoot);
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code, ELOOP);
  EXPECT_THAT(file.error().hint, HasSubstr("magic link"));
}

TEST_F(SafeOpen, AFifoIsRefusedAndNeverOpened) {
  ASSERT_EQ(::mkfifo((top_ / "rootfs/lib/fifo").c_str(), 0600), 0);
  // A writer that does not block succeeds only when somebody has opened the FIFO for reading.
  const auto by_path = open_in_root("/lib/fifo");
  const auto by_map = open_by_map(top_ / "rootfs/lib/fifo");
  for (const auto* file : {&by_path, &by_map}) {
    ASSERT_FALSE(*file);
    EXPECT_THAT(file->error().cause, HasSubstr("a FIFO, not a regular file"));
  }
  EXPECT_EQ(::open((top_ / "rootfs/lib/fifo").c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC), -1);
  EXPECT_EQ(errno, ENXIO);
}

TEST_F(SafeOpen, DirectoriesAndDevicesAreRefused) {
  EXPECT_THAT(open_in_root("/lib").error().cause, HasSubstr("a directory"));
  EXPECT_THAT(open_in_root("/").error().cause, HasSubstr("a directory"));
  EXPECT_THAT(open_by_map("/dev/null").error().cause, HasSubstr("a device"));
}

TEST_F(SafeOpen, ANewlineInThePathIsFoundAndEscapedInErrors) {
  write(top_ / "rootfs/lib/a\nb.so", "newline");
  EXPECT_EQ(text_of(open_in_root("/lib/a\nb.so")), "newline");
  const std::string message = open_in_root("/lib/no\nsuch").error().message();
  EXPECT_THAT(message, HasSubstr("/lib/no\\nsuch"));
  EXPECT_EQ(message.find('\n'), std::string::npos);
}

TEST_F(SafeOpen, NamesThatAreNoPathsAreRefused) {
  for (const std::string_view path : {std::string_view(""), std::string_view("[vdso]"),
                                      std::string_view("lib/x"), std::string_view("/lib\0/x", 7)}) {
    EXPECT_EQ(open_in_root(path).error().cause, "not an absolute file path");
  }
}

TEST_F(SafeOpen, MissingThingsSayWhatIsMissing) {
  const Error gone = open_in_root("/lib/libnccl.so.2 (deleted)").error();
  EXPECT_EQ(gone.code, ENOENT);
  EXPECT_THAT(gone.message(), HasSubstr("deleted or renamed"));
  const auto no_process =
      open_mapped_file(77, 0, 0, "/x", OpenMethod::kProcRoot, (top_ / "proc").string());
  EXPECT_THAT(no_process.error().message(), HasSubstr("proc/77/root): No such file"));
  const auto no_mapping = open_mapped_file(42, 0xabc000, 0xabd000, "/x", OpenMethod::kMapFiles,
                                           (top_ / "proc").string());
  EXPECT_THAT(no_mapping.error().message(), HasSubstr("map_files/abc000-abd000, /x"));
  EXPECT_THAT(no_mapping.error().hint, HasSubstr("mapping is gone"));
}

TEST_F(SafeOpen, MapFilesOpensTheLinkedFile) {
  EXPECT_EQ(text_of(open_by_map(top_ / "rootfs/lib/libnccl.so.2")), "inside");
}

TEST_F(SafeOpen, BothMethodsReachTheFileOfARealMapping) {
  // The first mapping of a file; sanitizers have anonymous ones before it.
  std::ifstream maps("/proc/self/maps");
  std::uint64_t start = 0, end = 0;
  std::string line, path;
  while (path.empty() && std::getline(maps, line)) {
    ASSERT_EQ(std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64, &start, &end), 2);
    if (const std::size_t slash = line.find('/'); slash != std::string::npos)
      path = line.substr(slash);
  }
  struct stat expected, got;
  ASSERT_EQ(::stat(path.c_str(), &expected), 0);
  for (const OpenMethod method : {OpenMethod::kMapFiles, OpenMethod::kProcRoot}) {
    const auto file = open_mapped_file(::getpid(), start, end, path, method);
    if (!file && (file.error().code == EPERM || file.error().code == EACCES)) {
      EXPECT_THAT(file.error().hint, HasSubstr("CAP_"));
      continue;  // not root here
    }
    ASSERT_TRUE(file) << file.error().message();
    ASSERT_EQ(::fstat(file->get(), &got), 0);
    EXPECT_EQ(got.st_ino, expected.st_ino);
  }
}

TEST(EscapePath, IsOneLineOfValidUtf8) {
  EXPECT_EQ(escape_path("/usr/lib/libnccl.so.2"), "/usr/lib/libnccl.so.2");
  EXPECT_EQ(escape_path("a\nb\tc\\d"), "a\\nb\\tc\\\\d");
  EXPECT_EQ(escape_path(std::string_view("\x1b[31m\0\x7f", 7)), "\\x1b[31m\\x00\\x7f");
  EXPECT_EQ(escape_path("gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80"),
            "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80");
  EXPECT_EQ(escape_path("\xc3"), "\\xc3");
  EXPECT_EQ(escape_path("\xff\xc0\xaf"), "\\xff\\xc0\\xaf") << "overlong";
  EXPECT_EQ(escape_path("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "surrogate";
  EXPECT_EQ(escape_path("\xc2\x85"), "\\xc2\\x85") << "a control character above ASCII";
  EXPECT_EQ(escape_path("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80") << "above U+10FFFF";
}

}  // namespace
}  // namespace ingero::discover
