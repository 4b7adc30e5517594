// SPDX-License-Identifier: Apache-2.0
// Small ELF files, written byte by byte, for the tests of the reader.
#pragma once

#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "base/unique_fd.h"

namespace ingero::test {

using Bytes = std::vector<std::uint8_t>;

/// A file in memory with these bytes.
inline UniqueFd memory_file(const Bytes& bytes) {
  UniqueFd fd(::memfd_create("elf", MFD_CLOEXEC));
  if (::pwrite(fd.get(), bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    return UniqueFd();
  }
  return fd;
}

struct TestSymbol {
  std::string name;
  Bytes code = {0x55, 0x48, 0x89, 0xe5, 0x5d, 0xc3, 0x90, 0x90};
  unsigned char type = STT_FUNC;
  unsigned char bind = STB_GLOBAL;
  std::uint16_t section = 1;  ///< SHN_UNDEF for an import
  std::optional<std::uint64_t> vaddr = std::nullopt;
  std::optional<std::string> same_address_as = std::nullopt;
};

struct ElfSpec {
  std::uint16_t machine = EM_X86_64;
  std::uint16_t type = ET_DYN;
  bool gnu_hash = true;
  bool sysv_hash = false;
  bool executable = true;
  bool dynamic = true;
  std::string soname = "libtest.so";
  std::string rodata;               ///< bytes of a .rodata section; needs with_sections
  bool with_sections = false;       ///< also .symtab with all symbols
  std::vector<TestSymbol> symbols;  ///< .dynsym: imports first, as the GNU hash wants them
  std::vector<TestSymbol> locals;   ///< .symtab only
};

/// Where things ended up, for tests that damage them.
struct BuiltElf {
  Bytes bytes;
  std::size_t program_headers = 0;
  std::size_t gnu_hash = 0;
  std::size_t sysv_hash = 0;
  std::size_t dynsym = 0;
  std::size_t dynstr = 0;
  std::size_t dynstr_size = 0;
  std::size_t code = 0;
  std::size_t dynamic = 0;
  std::size_t dynamic_size = 0;
};

inline constexpr std::uint64_t kBase = 0x10000;  // vaddr of file offset 0

template <typename T>
void put(Bytes& bytes, std::size_t at, const T& value) {
  if (bytes.size() < at + sizeof(T)) bytes.resize(at + sizeof(T));
  std::memcpy(bytes.data() + at, &value, sizeof(T));
}

template <typename T>
std::size_t append(Bytes& bytes, const T& value) {
  const std::size_t at = bytes.size();
  put(bytes, at, value);
  return at;
}

inline std::uint32_t gnu_hash(const std::string& name) {
  std::uint32_t hash = 5381;
  for (const char c : name) hash = hash * 33 + static_cast<unsigned char>(c);
  return hash;
}

class ElfBuilder {
 public:
  explicit ElfBuilder(ElfSpec spec) : spec_(std::move(spec)) {}

  BuiltElf build() {
    Bytes& b = out_.bytes;
    b.resize(sizeof(Elf64_Ehdr));
    out_.program_headers = b.size();
    b.resize(b.size() + 3 * sizeof(Elf64_Phdr));
    write_code();
    write_dynamic_tables();
    if (spec_.with_sections) write_sections();
    write_headers();
    return out_;
  }

 private:
  void align() { out_.bytes.resize((out_.bytes.size() + 15) / 16 * 16); }

  void write_code() {
    align();
    out_.code = out_.bytes.size();
    for (auto* list : {&spec_.symbols, &spec_.locals}) {
      for (TestSymbol& symbol : *list) {
        align();
        if (symbol.section == SHN_UNDEF || symbol.vaddr) continue;
        if (symbol.same_address_as) {
          for (const TestSymbol& other : *list) {
            if (other.name == *symbol.same_address_as) symbol.vaddr = other.vaddr;
          }
          continue;
        }
        symbol.vaddr = kBase + out_.bytes.size();
        out_.bytes.insert(out_.bytes.end(), symbol.code.begin(), symbol.code.end());
      }
    }
    align();
  }

  static Elf64_Sym entry_of(const TestSymbol& symbol, std::size_t name) {
    Elf64_Sym entry{};
    entry.st_name = static_cast<Elf64_Word>(name);
    entry.st_info = static_cast<unsigned char>((symbol.bind << 4) | symbol.type);
    entry.st_shndx = symbol.section;
    entry.st_value = symbol.vaddr.value_or(0);
    entry.st_size = symbol.code.size();
    return entry;
  }

  void write_dynamic_tables() {
    Bytes& b = out_.bytes;
    std::string strings(1, '\0');
    const std::size_t soname = strings.size();
    strings += spec_.soname + '\0';
    out_.dynsym = b.size();
    append(b, Elf64_Sym{});
    std::uint32_t first_defined = 1;
    for (const TestSymbol& symbol : spec_.symbols) {
      append(b, entry_of(symbol, strings.size()));
      strings += symbol.name + '\0';
      if (symbol.section == SHN_UNDEF) ++first_defined;
    }
    out_.dynstr = b.size();
    out_.dynstr_size = strings.size();
    b.insert(b.end(), strings.begin(), strings.end());
    align();
    const auto count = static_cast<std::uint32_t>(spec_.symbols.size() + 1);
    out_.gnu_hash = b.size();  // one bucket, one filter word that lets everything pass
    for (const std::uint32_t v : {1U, first_defined, 1U, 6U}) append(b, v);
    append(b, ~std::uint64_t{0});
    append(b, first_defined < count ? first_defined : 0U);
    for (std::uint32_t i = first_defined; i < count; ++i) {
      const std::uint32_t hash = gnu_hash(spec_.symbols[i - 1].name) & ~1U;
      append(b, i + 1 == count ? hash | 1U : hash);
    }
    align();
    out_.sysv_hash = b.size();  // one bucket
    append(b, 1U);
    append(b, count);
    append(b, count - 1);
    for (std::uint32_t i = 0; i < count; ++i) append(b, i == 0 ? 0U : i - 1);
    align();
    out_.dynamic = b.size();
    const auto tag = [&](std::int64_t name, std::uint64_t value) {
      Elf64_Dyn entry{};
      entry.d_tag = name;
      entry.d_un.d_val = value;
      append(b, entry);
    };
    if (!spec_.soname.empty()) tag(DT_SONAME, soname);
    tag(DT_SYMTAB, kBase + out_.dynsym);
    tag(DT_STRTAB, kBase + out_.dynstr);
    tag(DT_STRSZ, out_.dynstr_size);
    if (spec_.gnu_hash) tag(DT_GNU_HASH, kBase + out_.gnu_hash);
    if (spec_.sysv_hash) tag(DT_HASH, kBase + out_.sysv_hash);
    tag(DT_NULL, 0);
    out_.dynamic_size = b.size() - out_.dynamic;
  }

  void write_sections() {
    Bytes& b = out_.bytes;
    align();
    std::string strings(1, '\0');
    const std::size_t symtab = b.size();
    append(b, Elf64_Sym{});
    for (const auto* list : {&spec_.symbols, &spec_.locals}) {
      for (const TestSymbol& symbol : *list) {
        append(b, entry_of(symbol, strings.size()));
        strings += symbol.name + '\0';
      }
    }
    const std::size_t symtab_size = b.size() - symtab;
    const std::size_t strtab = b.size();
    b.insert(b.end(), strings.begin(), strings.end());
    const std::size_t rodata = b.size();
    b.insert(b.end(), spec_.rodata.begin(), spec_.rodata.end());
    const std::string names("\0.symtab\0.strtab\0.rodata\0.shstrtab\0", 35);
    const std::size_t names_at = b.size();
    b.insert(b.end(), names.begin(), names.end());
    align();
    sections_ = b.size();
    const auto section = [&](std::uint32_t name, std::uint32_t type, std::size_t at,
                             std::size_t size, std::uint32_t link) {
      Elf64_Shdr header{};
      header.sh_name = name;
      header.sh_type = type;
      header.sh_offset = at;
      header.sh_size = size;
      header.sh_link = link;
      append(b, header);
    };
    section(0, SHT_NULL, 0, 0, 0);
    section(1, SHT_SYMTAB, symtab, symtab_size, 2);
    section(9, SHT_STRTAB, strtab, strings.size(), 0);
    section(17, SHT_PROGBITS, rodata, spec_.rodata.size(), 0);
    section(25, SHT_STRTAB, names_at, names.size(), 0);
  }

  void write_headers() {
    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_ident[EI_VERSION] = EV_CURRENT;
    header.e_type = spec_.type;
    header.e_machine = spec_.machine;
    header.e_phoff = out_.program_headers;
    header.e_phentsize = sizeof(Elf64_Phdr);
    header.e_phnum = spec_.dynamic ? 2 : 1;
    if (sections_ != 0) {
      header.e_shoff = sections_;
      header.e_shentsize = sizeof(Elf64_Shdr);
      header.e_shnum = 5;
      header.e_shstrndx = 4;
    }
    put(out_.bytes, 0, header);
    Elf64_Phdr load{};
    load.p_type = PT_LOAD;
    load.p_flags = PF_R | (spec_.executable ? PF_X : 0U);
    load.p_vaddr = kBase;
    load.p_filesz = load.p_memsz = out_.bytes.size();
    put(out_.bytes, out_.program_headers, load);
    Elf64_Phdr dynamic{};
    dynamic.p_type = PT_DYNAMIC;
    dynamic.p_offset = out_.dynamic;
    dynamic.p_vaddr = kBase + out_.dynamic;
    dynamic.p_filesz = dynamic.p_memsz = out_.dynamic_size;
    put(out_.bytes, out_.program_headers + sizeof(Elf64_Phdr), dynamic);
  }

  ElfSpec spec_;
  BuiltElf out_;
  std::size_t sections_ = 0;
};

inline BuiltElf build_elf(ElfSpec spec) { return ElfBuilder(std::move(spec)).build(); }

}  // namespace ingero::test
