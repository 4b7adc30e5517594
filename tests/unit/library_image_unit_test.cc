// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "discover/library_image.h"
#include "tests/unit/testdata/elf/elf_builder.h"

namespace ingero::discover {
namespace {

using test::build_elf;
using test::Bytes;
using test::ElfSpec;
using test::memory_file;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

std::optional<LibraryImage> inspect(const ElfSpec& spec, std::string_view hint = "some.so") {
  const UniqueFd fd = memory_file(build_elf(spec).bytes);
  auto library = inspect_library(fd.get(), hint);
  EXPECT_TRUE(library) << library.error().message();
  return library ? *library : std::nullopt;
}

std::vector<std::string> names_of(const LibraryImage& library) {
  std::vector<std::string> names;
  for (const ProbePoint& point : library.points) names.emplace_back(point.function->symbol);
  return names;
}

/// test %rdi,%rdi; je; movl $code,(%rdi); xor %eax,%eax; ret
Bytes stores(std::uint32_t code) {
  Bytes bytes = {0x48, 0x85, 0xff, 0x74, 0x09, 0xc7, 0x07};
  test::append(bytes, code);
  for (const int byte : {0x31, 0xc0, 0xc3}) bytes.push_back(static_cast<std::uint8_t>(byte));
  return bytes;
}

Bytes arm64_words(std::initializer_list<std::uint32_t> words) {
  Bytes bytes;
  for (const std::uint32_t word : words) test::append(bytes, word);
  return bytes;
}

TEST(LibraryImage, ALibraryOfTheRealTools) {
  const UniqueFd fd(::open(INGERO_TEST_DATA "/elf/stub_library.elf", O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(fd);
  const auto library = inspect_library(fd.get(), "/a/b/libfoo.so");
  ASSERT_TRUE(library && *library);
  EXPECT_EQ((*library)->kind, LibraryKind::kNccl) << "by the soname";
  EXPECT_EQ((*library)->version, "2.28.9");
  EXPECT_THAT(names_of(**library), ElementsAre("ncclAllReduce", "ncclGroupStart", "ncclGroupEnd"));
  EXPECT_THAT((*library)->refused, ElementsAre(Pair("ncclSend", "not a function")));
  for (const ProbePoint& point : (*library)->points) EXPECT_TRUE(point.moved) << "behind endbr64";
}

TEST(LibraryImage, NothingOfOursIsNullopt) {
  EXPECT_FALSE(inspect({.soname = "libnvidia-ml.so.1", .symbols = {{.name = "nvmlInit_v2"}}}));
  EXPECT_FALSE(inspect({.symbols = {}}));
  EXPECT_FALSE(inspect({.symbols = {{.name = "ncclAllReduce", .section = SHN_UNDEF}}}))
      << "imported";
  EXPECT_FALSE(inspect({.symbols = {{.name = "pncclAllReduce"}}})) << "never wanted by itself";
  EXPECT_FALSE(inspect({.symbols = {{.name = "ncclGroupEndInternal"}}})) << "contains the name";
  EXPECT_FALSE(inspect({.soname = "libnccl.so.2", .symbols = {{.name = "ncclGetVersion"}}}))
      << "a name pattern is no confirmation";
  EXPECT_FALSE(inspect({.symbols = {{.name = "ncclSend", .type = STT_OBJECT}}})) << "data";
}

TEST(LibraryImage, AShimThatExportsOneFunctionIsACandidate) {
  const auto library =
      inspect({.soname = "", .symbols = {{.name = "ncclAllReduce"}}}, "/tmp/shim.so");
  ASSERT_TRUE(library);
  EXPECT_EQ(library->kind, LibraryKind::kOther);
  EXPECT_EQ(library->version, "");
}

TEST(LibraryImage, OneProbePerOffset) {
  ElfSpec spec;
  spec.symbols = {{.name = "pncclAllReduce"},
                  {.name = "ncclAllReduce", .same_address_as = "pncclAllReduce"},
                  {.name = "ncclAllToAll"},
                  {.name = "ncclAlltoAll", .same_address_as = "ncclAllToAll"}};
  const auto library = inspect(spec);
  ASSERT_TRUE(library);
  EXPECT_THAT(names_of(*library), ElementsAre("ncclAllReduce", "ncclAlltoAll"));
  EXPECT_THAT(library->aliases, ElementsAre(Pair("ncclAllToAll", "ncclAlltoAll")));
}

TEST(LibraryImage, RefusalsSayWhy) {
  ElfSpec spec;
  spec.symbols = {{.name = "ncclAllReduce", .type = STT_GNU_IFUNC},
                  {.name = "ncclSend", .vaddr = 0x10}};
  const auto library = inspect(spec);
  ASSERT_TRUE(library);
  EXPECT_THAT(library->points, IsEmpty());
  EXPECT_THAT(library->refused, ElementsAre(Pair("ncclAllReduce", HasSubstr("ifunc")),
                                            Pair("ncclSend", HasSubstr("no executable segment"))));
}

TEST(LibraryImage, KindComesFromSonameElseFileNameAndNeedsTheFunctions) {
  const auto kind = [](const char* soname, const char* hint, const char* symbol) {
    return inspect({.soname = soname, .symbols = {{.name = symbol}}}, hint).value().kind;
  };
  EXPECT_EQ(kind("libnccl.so.2", "/x", "ncclSend"), LibraryKind::kNccl);
  EXPECT_EQ(kind("", "/x/libnccl-8a5f2f20.so.2.28.9", "ncclSend"), LibraryKind::kNccl);
  EXPECT_EQ(kind("librccl.so.1", "/x", "ncclSend"), LibraryKind::kRccl);
  EXPECT_EQ(kind("libcudart.so.13", "/x", "cudaMemcpy"), LibraryKind::kCudart);
  EXPECT_EQ(kind("", "/x/libcudart-d0da41ae.so.11.0", "cudaMemcpy"), LibraryKind::kCudart);
  EXPECT_EQ(kind("libcuda.so.1", "/x", "cuMemcpyDtoH_v2"), LibraryKind::kCuda);
  EXPECT_EQ(kind("libtorch_cuda.so", "/x/libnccl.so.2", "ncclSend"), LibraryKind::kOther);
  EXPECT_EQ(kind("libnccl.so.2", "/x", "cudaMemcpy"), LibraryKind::kOther);
  EXPECT_EQ(kind("libncclshim.so", "/x", "ncclSend"), LibraryKind::kOther);
}

TEST(LibraryImage, VersionsFromTheStoredConstant) {
  const auto nccl = [](Bytes code, std::uint16_t machine = EM_X86_64) {
    ElfSpec spec;
    spec.machine = machine;
    spec.symbols = {{.name = "ncclSend"}, {.name = "ncclGetVersion", .code = std::move(code)}};
    return inspect(spec).value().version;
  };
  EXPECT_EQ(nccl(stores(22809)), "2.28.9");
  EXPECT_EQ(nccl(stores(2804)), "2.8.4");
  EXPECT_EQ(nccl(stores(7)), "") << "not a version";
  EXPECT_EQ(nccl(stores(0xffffffff)), "");
  // cbz x0; mov w1, #22809; str w1, [x0]; mov w0, #0; ret
  EXPECT_EQ(
      nccl(arm64_words({0xb4000080, 0x528b2321, 0xb9000001, 0x52800000, 0xd65f03c0}), EM_AARCH64),
      "2.28.9");
  // movz w2, #0x2b8d (low half of 22809's neighbour), movk w2, #1, lsl 16: 76685
  EXPECT_EQ(nccl(arm64_words({0x528571a2, 0x72a00022, 0xb9000002, 0xd65f03c0}), EM_AARCH64),
            "7.66.85");
}

TEST(LibraryImage, CudartVersionIsFoundBehindOneCall) {
  ElfSpec spec;
  spec.soname = "libcudart.so.13";
  // push %rbp; mov %r12,%rdi; call the next function (16 bytes after this one's start); ret
  spec.symbols = {{.name = "cudaMemcpy"},
                  {.name = "cudaRuntimeGetVersion",
                   .code = {0x55, 0x4c, 0x89, 0xe7, 0xe8, 0x07, 0, 0, 0, 0xc3}},
                  {.name = "hidden", .code = stores(13000)}};
  EXPECT_EQ(inspect(spec).value().version, "13.0");
  spec.symbols.resize(1);
  EXPECT_EQ(inspect(spec).value().version, "13") << "from the soname";
  // CUDA 13.5 on arm64: bl; the callee checks the pointer before mov w2, #13050; str w2, [x1].
  spec.machine = EM_AARCH64;
  spec.symbols.push_back({.name = "cudaRuntimeGetVersion",
                          .code = arm64_words({0xa9bf7bfd, 0xaa1403e0, 0x94000002, 0xd65f03c0})});
  spec.symbols.push_back({.name = "hidden",
                          .code = arm64_words({0xaa0003e1, 0xb40000a0, 0x52865f42, 0x52800000,
                                               0xb9000022, 0xd65f03c0})});
  EXPECT_EQ(inspect(spec).value().version, "13.5");
}

TEST(LibraryImage, VersionFromText) {
  const auto version = [](std::string text) {
    ElfSpec spec;
    spec.with_sections = true;
    spec.rodata = std::move(text);
    spec.symbols = {{.name = "ncclSend"}};
    return inspect(spec).value().version;
  };
  EXPECT_EQ(version("xNCCL version 2.21.5+cuda12.4\n"), "2.21.5");
  EXPECT_EQ(version("NCCL version %d.%d.%d RCCL version 2.22.3-HEAD"), "2.22.3");
  EXPECT_EQ(version("OCCL version 2.21.5"), "");
  EXPECT_EQ(version("NCCL version "), "");
  EXPECT_EQ(version("NCCL version 2."), "");
  EXPECT_EQ(version("NCCL version .2.3"), "");
  EXPECT_EQ(version(std::string(300'000, 'x') + "NCCL version 2.21.5"), "2.21.5") << "second block";
  EXPECT_EQ(version(std::string(262'133 - 8, 'x') + "NCCL version 2.21.5"), "2.21.5")
      << "on the seam";
}

TEST(LibraryImage, AProgramWithStaticNcclIsFoundByItsSymtab) {
  ElfSpec spec;
  spec.type = ET_EXEC;
  spec.soname = "";
  spec.with_sections = true;
  spec.locals = {
      {.name = "pncclSend"}, {.name = "ncclSend"}, {.name = "cudaMemcpy", .bind = STB_LOCAL}};
  const auto library = inspect(spec, "/usr/bin/train");
  ASSERT_TRUE(library);
  EXPECT_EQ(library->kind, LibraryKind::kOther);
  EXPECT_THAT(names_of(*library), ElementsAre("ncclSend", "cudaMemcpy"));
  spec.type = ET_DYN;
  spec.soname = "libnccl.so.2";
  EXPECT_FALSE(inspect(spec)) << "the private cudart of a library is not the user's call";
  spec.type = ET_EXEC;
  spec.dynamic = false;
  EXPECT_TRUE(inspect(spec)) << "static executable";
}

TEST(LibraryImage, ErrorsNameTheFileInOneLine) {
  const UniqueFd fd = memory_file(Bytes(100, 'x'));
  const auto library = inspect_library(fd.get(), "/a\nb");
  ASSERT_FALSE(library);
  EXPECT_EQ(library.error().message(), "inspect library (/a\\nb): not an ELF file");
}

TEST(LibraryImage, VersionRanges) {
  EXPECT_EQ(nccl_version_text(20906), "2.9.6");
  EXPECT_EQ(nccl_version_text(2305), "2.3.5");
  EXPECT_EQ(nccl_version_text(23203), "2.32.3");
  EXPECT_EQ(nccl_version_text(100000), std::nullopt);
  EXPECT_EQ(nccl_version_text(0), std::nullopt);
  EXPECT_EQ(cudart_version_text(12040), "12.4");
  EXPECT_EQ(cudart_version_text(13050), "13.5");
  EXPECT_EQ(cudart_version_text(13051), std::nullopt);
}

}  // namespace
}  // namespace ingero::discover
