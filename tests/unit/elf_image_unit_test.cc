// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <random>

#include "discover/elf_image.h"
#include "discover/library_image.h"
#include "tests/unit/testdata/elf/elf_builder.h"

namespace ingero::discover {
namespace {

using test::build_elf;
using test::BuiltElf;
using test::Bytes;
using test::ElfSpec;
using test::kBase;
using test::memory_file;
using test::put;
using testing::HasSubstr;

Bytes stub_library() {
  std::ifstream file(INGERO_TEST_DATA "/elf/stub_library.elf", std::ios::binary);
  return Bytes(std::istreambuf_iterator<char>(file), {});
}

/// Everything the reader can do on one file, results unused: for files that must only do no harm.
void exercise(int fd) {
  auto image = ElfImage::create(fd);
  if (image) {
    const std::string_view names[] = {"ncclAllReduce", "ncclSend", "absent", ""};
    (void)image->soname();
    (void)image->is_program();
    (void)image->find_exported(names);
    (void)image->find_in_symtab(names);
    (void)image->section(".rodata");
    for (const Segment& segment : image->segments()) {
      (void)image->probe_offset(segment.offset);
      (void)image->read_at(segment.vaddr, 100);
      (void)image->code_offset(segment.vaddr);
    }
  }
  (void)inspect_library(fd, "x");
}

std::string create_error(const Bytes& bytes) {
  const UniqueFd fd = memory_file(bytes);
  const auto image = ElfImage::create(fd.get());
  return image ? "no error" : image.error().cause;
}

struct Found {
  std::vector<Symbol> symbols;
  std::string error;
};

Found find(const Bytes& bytes, std::vector<std::string_view> names) {
  const UniqueFd fd = memory_file(bytes);
  auto image = ElfImage::create(fd.get());
  if (!image) return {{}, image.error().cause};
  auto found = image->find_exported(names);
  if (!found) return {{}, found.error().cause};
  return {*found, ""};
}

ElfSpec two_functions() {
  ElfSpec spec;
  spec.symbols = {
      {.name = "imported", .section = SHN_UNDEF}, {.name = "first"}, {.name = "second"}};
  return spec;
}

TEST(ElfImage, ReadsALibraryOfTheRealTools) {
  const UniqueFd fd = memory_file(stub_library());
  auto image = ElfImage::create(fd.get());
  ASSERT_TRUE(image) << image.error().message();
  EXPECT_EQ(image->machine(), Machine::kX86_64);
  EXPECT_EQ(image->soname().value(), "libnccl.so.2");
  EXPECT_FALSE(image->is_program().value());
  const std::string_view names[] = {"ncclAllReduce", "ncclGroupEnd", "pncclGroupEnd",
                                    "ncclSend",      "ncclRecv",     "ncclAllReduc"};
  const auto found = image->find_exported(names);
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_EQ((*found)[0].kind, SymbolKind::kFunction);
  EXPECT_GT((*found)[0].size, 0U);
  EXPECT_EQ((*found)[1].vaddr, (*found)[2].vaddr);
  EXPECT_EQ((*found)[3].kind, SymbolKind::kOther) << "data";
  EXPECT_EQ((*found)[4].kind, SymbolKind::kAbsent) << "imported only";
  EXPECT_EQ((*found)[5].kind, SymbolKind::kAbsent) << "a prefix is no match";
  const auto in_symtab = image->find_in_symtab(names);
  ASSERT_TRUE(in_symtab);
  EXPECT_EQ((*in_symtab)[1].vaddr, (*found)[1].vaddr) << "ncclX shares the tail of pncclX";
}

TEST(ElfImage, ALibraryWithoutOurNamesCostsAHandfulOfReads) {
  const UniqueFd fd(::open("/lib/x86_64-linux-gnu/libc.so.6", O_RDONLY | O_CLOEXEC));
  if (!fd) GTEST_SKIP() << "no libc at the place where Debian has it";
  auto image = ElfImage::create(fd.get());
  ASSERT_TRUE(image);
  std::vector<std::string_view> names;
  for (const auto& function : model::api_functions()) names.push_back(function.symbol);
  const auto found = image->find_exported(names);
  ASSERT_TRUE(found);
  for (const Symbol& symbol : *found) EXPECT_EQ(symbol.kind, SymbolKind::kAbsent);
  EXPECT_LE(image->file().reads(), 24U);
  EXPECT_LE(image->file().bytes_read(), 200'000U);
}

TEST(ElfImage, EveryKindOfTableGivesTheSameAnswer) {
  for (const auto& [gnu, sysv] :
       {std::pair(true, false), std::pair(false, true), std::pair(false, false)}) {
    ElfSpec spec = two_functions();
    spec.gnu_hash = gnu;
    spec.sysv_hash = sysv;
    const BuiltElf elf = build_elf(spec);
    const Found found = find(elf.bytes, {"second", "imported", "first", "third"});
    ASSERT_EQ(found.error, "");
    EXPECT_EQ(found.symbols[0].kind, SymbolKind::kFunction);
    EXPECT_EQ(found.symbols[1].kind, SymbolKind::kAbsent);
    EXPECT_EQ(found.symbols[2].vaddr, kBase + elf.code);
    EXPECT_EQ(found.symbols[3].kind, SymbolKind::kAbsent);
  }
}

TEST(ElfImage, OnlyDefinedFunctionsAreFunctions) {
  ElfSpec spec;
  spec.symbols = {{.name = "ifunc", .type = STT_GNU_IFUNC},
                  {.name = "data", .type = STT_OBJECT},
                  {.name = "absolute", .section = SHN_ABS},
                  {.name = "local", .bind = STB_LOCAL},
                  {.name = "weak", .bind = STB_WEAK}};
  const Found found = find(build_elf(spec).bytes, {"ifunc", "data", "absolute", "local", "weak"});
  ASSERT_EQ(found.error, "");
  EXPECT_EQ(found.symbols[0].kind, SymbolKind::kIfunc);
  EXPECT_EQ(found.symbols[1].kind, SymbolKind::kOther);
  EXPECT_EQ(found.symbols[2].kind, SymbolKind::kOther);
  EXPECT_EQ(found.symbols[3].kind, SymbolKind::kAbsent);
  EXPECT_EQ(found.symbols[4].kind, SymbolKind::kFunction);
}

TEST(ElfImage, EveryVersionOfAFunctionIsFound) {
  for (const bool gnu : {true, false}) {
    ElfSpec spec;
    spec.gnu_hash = gnu;
    spec.sysv_hash = !gnu;
    spec.symbols = {{"ncclSend"}, {"ncclRecv"}, {"ncclSend"}, {"ncclSend"}};
    const auto fd = memory_file(build_elf(spec).bytes);
    auto image = ElfImage::create(fd.get());
    ASSERT_TRUE(image) << image.error().message();
    const std::vector<std::string_view> names = {"ncclSend", "ncclRecv"};
    const auto found = image->find_exported(names);
    ASSERT_TRUE(found) << found.error().message();
    EXPECT_EQ((*found)[0].other_versions.size(), 2u);
    EXPECT_TRUE((*found)[1].other_versions.empty());
  }
}

TEST(ElfImage, CodeOffsetFollowsTheSegmentAndWantsItExecutable) {
  ElfSpec spec = two_functions();
  const BuiltElf elf = build_elf(spec);
  const UniqueFd fd = memory_file(elf.bytes);
  const auto image = ElfImage::create(fd.get());
  ASSERT_TRUE(image);
  EXPECT_EQ(image->code_offset(kBase + elf.code).value(), elf.code);
  EXPECT_THAT(image->code_offset(kBase - 1).error().cause, HasSubstr("no executable segment"));
  EXPECT_FALSE(image->code_offset(kBase + elf.bytes.size()));
  EXPECT_FALSE(image->code_offset(~std::uint64_t{0}));
  spec.executable = false;
  const UniqueFd data_fd = memory_file(build_elf(spec).bytes);
  EXPECT_FALSE(ElfImage::create(data_fd.get())->code_offset(kBase + elf.code));
}

TEST(ElfImage, ProbeMovesPastExactlyEndbr64OrBtiC) {
  struct Case {
    std::uint16_t machine;
    Bytes code;
    std::uint64_t moved;
  };
  const Case cases[] = {
      {EM_X86_64, {0xf3, 0x0f, 0x1e, 0xfa, 0xc3}, 4},   // endbr64
      {EM_X86_64, {0xf3, 0x0f, 0x1e, 0xfb, 0xc3}, 0},   // endbr32
      {EM_X86_64, {0x5f, 0x24, 0x03, 0xd5, 0xc3}, 0},   // bti c on the wrong machine
      {EM_X86_64, {0x55, 0x48, 0x89, 0xe5, 0xc3}, 0},   // push, mov
      {EM_AARCH64, {0x5f, 0x24, 0x03, 0xd5, 0xc0}, 4},  // bti c
      {EM_AARCH64, {0x9f, 0x24, 0x03, 0xd5, 0xc0}, 0},  // bti j
      {EM_AARCH64, {0xdf, 0x24, 0x03, 0xd5, 0xc0}, 0},  // bti jc
      {EM_AARCH64, {0x3f, 0x23, 0x03, 0xd5, 0xc0}, 0},  // paciasp
      {EM_AARCH64, {0xf3, 0x0f, 0x1e, 0xfa, 0xc0}, 0},
  };
  for (const Case& c : cases) {
    ElfSpec spec;
    spec.machine = c.machine;
    spec.symbols = {{.name = "f", .code = c.code}};
    const BuiltElf elf = build_elf(spec);
    const UniqueFd fd = memory_file(elf.bytes);
    EXPECT_EQ(ElfImage::create(fd.get())->probe_offset(elf.code).value(), elf.code + c.moved);
  }
}

TEST(ElfImage, ProbeOffsetOutsideOfCodeFails) {
  const BuiltElf elf = build_elf(two_functions());
  const UniqueFd fd = memory_file(elf.bytes);
  auto image = ElfImage::create(fd.get());
  EXPECT_FALSE(image->probe_offset(elf.bytes.size()));
  EXPECT_FALSE(image->probe_offset(~std::uint64_t{0}));
  EXPECT_EQ(image->probe_offset(elf.bytes.size() - 2).value(), elf.bytes.size() - 2);
}

TEST(ElfImage, ErrorsNameTheCause) {
  const Bytes good = build_elf(two_functions()).bytes;
  const auto with = [&](std::size_t at, std::uint8_t value) {
    Bytes bytes = good;
    bytes[at] = value;
    return create_error(bytes);
  };
  EXPECT_EQ(create_error({}), "not an ELF file");
  EXPECT_EQ(create_error(Bytes(4096, 'x')), "not an ELF file");
  EXPECT_THAT(with(EI_CLASS, ELFCLASS32), HasSubstr("32-bit"));
  EXPECT_THAT(with(EI_DATA, ELFDATA2MSB), HasSubstr("big endian"));
  EXPECT_THAT(with(offsetof(Elf64_Ehdr, e_machine), EM_386), HasSubstr("machine 3 is neither"));
  EXPECT_THAT(with(offsetof(Elf64_Ehdr, e_type), ET_CORE), HasSubstr("ELF type 4"));
  EXPECT_THAT(with(offsetof(Elf64_Ehdr, e_phentsize), 32), HasSubstr("32 bytes each"));
  EXPECT_THAT(with(offsetof(Elf64_Ehdr, e_phnum) + 1, 0xff),
              HasSubstr("program headers, more than"));
  EXPECT_THAT(create_error(Bytes(good.begin(), good.begin() + 100)),
              "truncated: program headers end at 176, file has 100 bytes");
  EXPECT_THAT(create_error(Bytes(good.begin(), good.end() - 1)),
              HasSubstr("truncated: segment 0 ends at"));
}

TEST(ElfImage, NoRegularFileIsRefused) {
  int pipe_fds[2];
  ASSERT_EQ(::pipe2(pipe_fds, O_CLOEXEC), 0);
  const UniqueFd reading(pipe_fds[0]), writing(pipe_fds[1]);
  EXPECT_EQ(ElfImage::create(reading.get()).error().cause, "not a regular file");
  EXPECT_FALSE(ElfImage::create(-1));
}

TEST(ElfImage, AnImpossibleSizeIsAnErrorAndNoAllocation) {
  const BuiltElf elf = build_elf(two_functions());
  for (const std::uint64_t huge : {~0ULL, ~0ULL - 63, 1ULL << 63, 1ULL << 40}) {
    Bytes bytes = elf.bytes;
    put(bytes, elf.program_headers + offsetof(Elf64_Phdr, p_filesz), huge);
    EXPECT_NE(create_error(bytes), "no error") << huge;
    bytes = elf.bytes;
    put(bytes, elf.program_headers + offsetof(Elf64_Phdr, p_offset), huge);
    EXPECT_NE(create_error(bytes), "no error") << huge;
    bytes = elf.bytes;
    put(bytes, offsetof(Elf64_Ehdr, e_phoff), huge);
    EXPECT_THAT(create_error(bytes), HasSubstr("truncated: program headers")) << huge;
    bytes = elf.bytes;
    put(bytes, elf.program_headers + offsetof(Elf64_Phdr, p_vaddr), huge);
    exercise(memory_file(bytes).get());
  }
}

TEST(ElfImage, HugeHashHeadersAreErrors) {
  const BuiltElf elf = build_elf(two_functions());
  Bytes bytes = elf.bytes;
  put(bytes, elf.gnu_hash, 0xffffffffU);  // buckets
  EXPECT_THAT(find(bytes, {"first"}).error, HasSubstr("truncated: GNU hash buckets"));
  bytes = elf.bytes;
  put(bytes, elf.gnu_hash + 8, 0x80000000U);  // filter words
  EXPECT_THAT(find(bytes, {"first"}).error, HasSubstr("truncated: GNU hash filter"));
  bytes = elf.bytes;
  put(bytes, elf.gnu_hash + 8, 3U);
  EXPECT_THAT(find(bytes, {"first"}).error, HasSubstr("impossible bloom filter"));
  bytes = elf.bytes;
  put(bytes, elf.gnu_hash + 12, 32U);  // shift
  EXPECT_THAT(find(bytes, {"first"}).error, HasSubstr("impossible bloom filter"));
  bytes = elf.bytes;
  put(bytes, elf.gnu_hash + 24, 0x7fffffffU);  // the bucket's first symbol
  EXPECT_THAT(find(bytes, {"first"}).error, HasSubstr("truncated: GNU hash chains"));
}

TEST(ElfImage, AGnuHashChainWithoutEndIsCut) {
  ElfSpec spec;
  spec.symbols = {{.name = "f"}};
  BuiltElf elf = build_elf(spec);
  // The table moves behind everything else, where 10,000 chain entries without an end mark follow.
  elf.bytes.resize((elf.bytes.size() + 15) / 16 * 16);
  const std::uint64_t table = elf.bytes.size();
  for (const std::uint32_t v : {1U, 1U, 1U, 6U}) test::append(elf.bytes, v);
  test::append(elf.bytes, ~std::uint64_t{0});
  test::append(elf.bytes, 1U);
  for (int i = 0; i < 10000; ++i) test::append(elf.bytes, 2U);
  put<std::uint64_t>(elf.bytes, elf.program_headers + offsetof(Elf64_Phdr, p_filesz),
                     elf.bytes.size());
  for (std::size_t at = elf.dynamic;; at += sizeof(Elf64_Dyn)) {
    Elf64_Dyn entry;
    std::memcpy(&entry, elf.bytes.data() + at, sizeof(entry));
    ASSERT_NE(entry.d_tag, DT_NULL);
    if (entry.d_tag != DT_GNU_HASH) continue;
    put<std::uint64_t>(elf.bytes, at + 8, kBase + table);
    break;
  }
  EXPECT_THAT(find(elf.bytes, {"absent"}).error, HasSubstr("GNU hash chain is longer than 4096"));
}

TEST(ElfImage, ALoopInAHashChainIsCut) {
  ElfSpec spec = two_functions();
  spec.gnu_hash = false;
  spec.sysv_hash = true;
  const BuiltElf elf = build_elf(spec);
  Bytes bytes = elf.bytes;
  put(bytes, elf.sysv_hash + 12 + 4 * 2, 3U);  // 3 -> 2 -> 3 -> ...
  EXPECT_THAT(find(bytes, {"absent"}).error, HasSubstr("or a loop"));
  bytes = elf.bytes;
  put(bytes, elf.sysv_hash + 8, 0xffffffffU);
  EXPECT_THAT(find(bytes, {"absent"}).error, HasSubstr("leaves the symbol table"));
}

TEST(ElfImage, ANameWithoutTerminatorIsNoMatch) {
  ElfSpec spec = two_functions();
  BuiltElf elf = build_elf(spec);
  elf.bytes[elf.dynstr + elf.dynstr_size - 1] = 'x';  // "second" now runs out of the table
  EXPECT_EQ(find(elf.bytes, {"second"}).symbols.at(0).kind, SymbolKind::kAbsent);
  EXPECT_EQ(find(elf.bytes, {"first"}).symbols.at(0).kind, SymbolKind::kFunction);
}

TEST(ElfImage, AStringOffsetOutsideOfTheTableIsAnError) {
  ElfSpec spec;
  spec.symbols = {{.name = "f"}};
  BuiltElf elf = build_elf(spec);
  put(elf.bytes, elf.dynsym + sizeof(Elf64_Sym), 0xfffffff0U);
  EXPECT_THAT(find(elf.bytes, {"f"}).error, HasSubstr("outside of the string table"));
}

TEST(ElfImage, OverlappingHeadersDoNoHarm) {
  BuiltElf elf = build_elf(two_functions());
  put<std::uint64_t>(elf.bytes, offsetof(Elf64_Ehdr, e_phoff),
                     0);  // headers on top of the ELF header
  exercise(memory_file(elf.bytes).get());
  elf = build_elf(two_functions());
  put<std::uint64_t>(elf.bytes, offsetof(Elf64_Ehdr, e_shoff), 1);
  put<std::uint16_t>(elf.bytes, offsetof(Elf64_Ehdr, e_shentsize), 64);
  exercise(memory_file(elf.bytes).get());
}

TEST(ElfImage, AFourGigabyteSparseFileCostsLittle) {
  ElfSpec spec = two_functions();
  spec.with_sections = true;
  BuiltElf elf = build_elf(spec);
  constexpr std::uint64_t kHuge = 4ULL << 30;
  put<std::uint64_t>(elf.bytes, elf.program_headers + offsetof(Elf64_Phdr, p_filesz), kHuge);
  Elf64_Ehdr header;
  std::memcpy(&header, elf.bytes.data(), sizeof(header));
  const std::size_t symtab = header.e_shoff + sizeof(Elf64_Shdr);
  put<std::uint64_t>(elf.bytes, symtab + offsetof(Elf64_Shdr, sh_size), kHuge);
  const UniqueFd fd = memory_file(elf.bytes);
  ASSERT_EQ(::ftruncate(fd.get(), kHuge), 0);
  auto image = ElfImage::create(fd.get());
  ASSERT_TRUE(image);
  const std::string_view names[] = {"first"};
  EXPECT_EQ(image->find_exported(names)->at(0).kind, SymbolKind::kFunction);
  EXPECT_THAT(image->find_in_symtab(names).error().cause, HasSubstr("exceeds 64"));
  EXPECT_LT(image->file().bytes_read(), 100'000U);
}

TEST(ElfImage, ADynamicSectionOfGigabytesIsReadToALimit) {
  BuiltElf elf = build_elf(two_functions());
  constexpr std::uint64_t kHuge = 1ULL << 30;
  const std::size_t dynamic = elf.program_headers + sizeof(Elf64_Phdr);
  put<std::uint64_t>(elf.bytes, dynamic + offsetof(Elf64_Phdr, p_filesz), kHuge);
  const UniqueFd fd = memory_file(elf.bytes);
  ASSERT_EQ(::ftruncate(fd.get(), kHuge * 2), 0);
  exercise(fd.get());
  EXPECT_LT(ElfImage::create(fd.get())->file().bytes_read(), 100'000U);
}

TEST(ElfImage, AFileThatShrinksUnderTheReaderGivesAnError) {
  const BuiltElf elf = build_elf(two_functions());
  const UniqueFd fd = memory_file(elf.bytes);
  auto image = ElfImage::create(fd.get());
  ASSERT_TRUE(image);
  ASSERT_EQ(::ftruncate(fd.get(), 64), 0);
  const std::string_view names[] = {"first"};
  const auto found = image->find_exported(names);
  ASSERT_FALSE(found);
  EXPECT_THAT(found.error().cause, HasSubstr("became shorter"));
}

TEST(ElfImage, EveryTruncationIsAnErrorAndNoCrash) {
  const Bytes whole = stub_library();
  ASSERT_GT(whole.size(), 4096U);
  for (std::size_t size = 0; size < whole.size(); size += 64) {
    const UniqueFd fd = memory_file(Bytes(whole.begin(), whole.begin() + size));
    exercise(fd.get());
  }
}

TEST(ElfImage, FlippedBytesDoNoHarm) {
  ElfSpec spec = two_functions();
  spec.symbols.push_back({.name = "ncclAllReduce"});
  spec.with_sections = true;
  spec.rodata = "NCCL version 2.20.5+cuda12.4";
  ElfSpec old_style = spec;
  old_style.gnu_hash = false;
  old_style.sysv_hash = true;
  old_style.type = ET_EXEC;
  ElfSpec bare = spec;
  bare.gnu_hash = false;
  bare.machine = EM_AARCH64;
  const Bytes seeds[] = {stub_library(), build_elf(spec).bytes, build_elf(old_style).bytes,
                         build_elf(bare).bytes};
  std::mt19937 random(20240601);
  for (int round = 0; round < 4000; ++round) {
    Bytes bytes = seeds[random() % std::size(seeds)];
    const unsigned flips = 1 + random() % 8;
    for (unsigned i = 0; i < flips; ++i) {
      // Half of the damage goes to the first KiB, where the headers are.
      const std::size_t range =
          random() % 2 == 0 ? std::min<std::size_t>(1024, bytes.size()) : bytes.size();
      bytes[random() % range] = static_cast<std::uint8_t>(random() % 3 == 0 ? 0xff : random());
    }
    exercise(memory_file(bytes).get());
  }
}

}  // namespace
}  // namespace ingero::discover
