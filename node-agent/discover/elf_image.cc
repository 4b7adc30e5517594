// SPDX-License-Identifier: Apache-2.0
#include "discover/elf_image.h"

#include <elf.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <unordered_map>

namespace ingero::discover {
namespace {

constexpr std::uint64_t kMiB = 1024 * 1024;
constexpr std::uint64_t kMaxBytesRead = 320 * kMiB;  // per image, all reads together
constexpr std::uint64_t kMaxProgramHeaders = 1024;
constexpr std::uint64_t kMaxSections = 16384;
constexpr std::uint64_t kMaxDynamicBytes = 64 * 1024;
constexpr std::uint64_t kMaxSymbolBytes = 64 * kMiB;
constexpr std::uint64_t kMaxStringBytes = 128 * kMiB;
constexpr std::size_t kMaxName = 1024;   // of a wanted symbol, a soname or a section, in bytes
constexpr std::size_t kMaxChain = 4096;  // steps along one hash chain; real ones have a few dozen
constexpr std::size_t kMaxNameHits = 4096;  // places in a string table where wanted names stand
constexpr std::size_t kScanBytes =
    6144 * sizeof(Elf64_Sym);  // 144 KiB per read of a streaming scan
constexpr std::size_t kMaxReadAt = 64 * 1024;

tl::unexpected<Error> bad(std::string cause) {
  return fail(Error{"read ELF file", "", std::move(cause), "", 0});
}

/// a + b where the sum exists.
std::optional<std::uint64_t> add(std::uint64_t a, std::uint64_t b) {
  std::uint64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

/// Copies a structure out of bytes that have any alignment. The caller has checked the size.
template <typename T>
T load(std::span<const std::byte> bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof(T));
  return value;
}

template <typename T>
Result<T> load_at(ReadWindow& window, BoundedFile& file, std::uint64_t offset,
                  std::string_view what) {
  const auto bytes = window.at(file, offset, sizeof(T), what);
  if (!bytes) return fail(bytes.error());
  return load<T>(*bytes);
}

std::uint32_t gnu_hash_of(std::string_view name) {
  std::uint32_t hash = 5381;
  for (const char c : name) hash = hash * 33 + static_cast<unsigned char>(c);
  return hash;
}

std::uint32_t sysv_hash_of(std::string_view name) {
  std::uint32_t hash = 0;
  for (const char c : name) {
    hash = (hash << 4) + static_cast<unsigned char>(c);
    const std::uint32_t top = hash & 0xf0000000;
    hash = (hash ^ (top >> 24)) & ~top;
  }
  return hash;
}

Symbol classify(const Elf64_Sym& entry, bool with_locals) {
  const bool local = ELF64_ST_BIND(entry.st_info) == STB_LOCAL;
  if (entry.st_shndx == SHN_UNDEF || (local && !with_locals)) return {};
  Symbol symbol{SymbolKind::kOther, entry.st_value, entry.st_size};
  const unsigned type = ELF64_ST_TYPE(entry.st_info);
  const bool in_section = entry.st_shndx < SHN_LORESERVE || entry.st_shndx == SHN_XINDEX;
  if (type == STT_FUNC && in_section) symbol.kind = SymbolKind::kFunction;
  if (type == STT_GNU_IFUNC && in_section) symbol.kind = SymbolKind::kIfunc;
  return symbol;
}

/// A function beats everything else that has its name; else the first stays.
void keep_better(Symbol& held, const Symbol& next) {
  if (held.kind == SymbolKind::kFunction || next.kind == SymbolKind::kAbsent) return;
  if (held.kind == SymbolKind::kAbsent || next.kind == SymbolKind::kFunction) held = next;
}

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// `bytes` begin with `name` and a terminating zero.
bool is_string(std::string_view bytes, std::string_view name) {
  return bytes.size() > name.size() && bytes[name.size()] == '\0' && bytes.starts_with(name);
}

/// Finds where names (with their terminating zero) stand in a string table, also as the tail of a
/// longer string: linkers let ncclX share the bytes of pncclX.
class NameFinder {
 public:
  explicit NameFinder(std::span<const std::string_view> names) : names_(names) {
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (names[i].empty() || names[i].size() > kMaxName) continue;
      by_prefix_[names[i].substr(0, 4)].push_back(i);
      longest_ = std::max(longest_, names[i].size());
    }
  }
  bool empty() const { return by_prefix_.empty(); }

  std::size_t longest() const { return longest_; }
  const std::unordered_multimap<std::uint64_t, std::size_t>& hits() const { return hits_; }

  /// Examines the start positions [0, limit) of `text`, which stands at `base` in the table.
  Status search(std::string_view text, std::size_t limit, std::uint64_t base) {
    for (const auto& [prefix, indexes] : by_prefix_) {
      for (std::size_t at = next(text, prefix, 0); at < limit; at = next(text, prefix, at + 1)) {
        for (const std::size_t index : indexes) {
          const std::string_view rest = text.substr(at);
          if (!is_string(rest, names_[index])) continue;
          if (hits_.size() >= kMaxNameHits)
            return bad("string table repeats the wanted names too often");
          hits_.emplace(base + at, index);
        }
      }
    }
    return {};
  }

 private:
  // memmem: several times faster here than string_view::find, which stops at every first letter.
  static std::size_t next(std::string_view text, std::string_view prefix, std::size_t from) {
    const void* hit =
        ::memmem(text.data() + from, text.size() - from, prefix.data(), prefix.size());
    if (hit == nullptr) return std::string_view::npos;
    return static_cast<std::size_t>(static_cast<const char*>(hit) - text.data());
  }

  std::span<const std::string_view> names_;
  std::map<std::string_view, std::vector<std::size_t>> by_prefix_;
  std::size_t longest_ = 0;
  std::unordered_multimap<std::uint64_t, std::size_t>
      hits_;  // offset in the table -> index of the name
};

Status check_ident(std::span<const std::byte> ident) {
  const auto at = [&](std::size_t i) { return std::to_integer<unsigned>(ident[i]); };
  if (std::memcmp(ident.data(), ELFMAG, SELFMAG) != 0) return bad("not an ELF file");
  if (at(EI_CLASS) == ELFCLASS32) return bad("32-bit ELF file; only 64-bit files are traced");
  if (at(EI_CLASS) != ELFCLASS64) return bad(fmt::format("unknown ELF class {}", at(EI_CLASS)));
  if (at(EI_DATA) == ELFDATA2MSB)
    return bad("big endian ELF file; only little endian files are traced");
  if (at(EI_DATA) != ELFDATA2LSB)
    return bad(fmt::format("unknown ELF data encoding {}", at(EI_DATA)));
  return {};
}

struct GnuHashHeader {
  std::uint32_t buckets, first_symbol, bloom_words, bloom_shift;
};

struct WantedName {
  std::uint32_t hash;
  std::size_t index;
};

/// The names that the bloom filter lets pass: those that are there, and a few percent of the
/// others. Asked in the order of the filter's words, so that one window moves over the filter once.
Result<std::vector<WantedName>> filter_by_bloom(ReadWindow& window, BoundedFile& file,
                                                const GnuHashHeader& header, std::uint64_t bloom,
                                                std::span<const std::string_view> names) {
  std::vector<WantedName> wanted;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i].empty() || names[i].size() > kMaxName) continue;
    wanted.push_back({gnu_hash_of(names[i]), i});
  }
  const auto word_of = [&](const WantedName& want) {
    return (want.hash / 64) & (header.bloom_words - 1);
  };
  std::sort(wanted.begin(), wanted.end(),
            [&](const WantedName& a, const WantedName& b) { return word_of(a) < word_of(b); });
  std::vector<WantedName> passed;
  for (const WantedName& want : wanted) {
    const auto word = load_at<std::uint64_t>(window, file, bloom + 8 * std::uint64_t{word_of(want)},
                                             "GNU hash filter");
    if (!word) return fail(word.error());
    const std::uint64_t mask =
        (1ULL << (want.hash % 64)) | (1ULL << ((want.hash >> header.bloom_shift) % 64));
    if ((*word & mask) == mask) passed.push_back(want);
  }
  return passed;
}

}  // namespace

Status BoundedFile::read(std::uint64_t offset, std::span<std::byte> out, std::string_view what) {
  const auto end = add(offset, out.size());
  if (!end) return bad(fmt::format("{} at offset {} is out of range", what, offset));
  if (*end > size_) {
    return bad(fmt::format("truncated: {} end at {}, file has {} bytes", what, *end, size_));
  }
  if (out.size() > kMaxBytesRead - bytes_read_) {
    return bad(
        fmt::format("more than {} MiB would have to be read for {}", kMaxBytesRead / kMiB, what));
  }
  bytes_read_ += out.size();
  while (!out.empty()) {
    ++reads_;
    const ssize_t got = ::pread(fd_, out.data(), out.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail_errno("read ELF file", fmt::format("{} at {}", what, offset));
    if (got == 0) return bad(fmt::format("the file became shorter while {} were read", what));
    out = out.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
  return {};
}

Result<std::span<const std::byte>> ReadWindow::at(BoundedFile& file, std::uint64_t offset,
                                                  std::size_t size, std::string_view what) {
  const bool held = offset >= begin_ && offset - begin_ <= block_.size() &&
                    size <= block_.size() - (offset - begin_);
  if (!held) {
    const std::uint64_t rest = offset < file.size() ? file.size() - offset : 0;
    std::vector<std::byte> block(
        std::max<std::size_t>(size, std::min<std::uint64_t>(rest, kBytes)));
    if (auto done = file.read(offset, block, what); !done) return fail(done.error());
    block_ = std::move(block);
    begin_ = offset;
  }
  return std::span<const std::byte>(block_).subspan(offset - begin_, size);
}

Result<ElfImage> ElfImage::create(int fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return fail_errno("read ELF file", "fstat");
  if (!S_ISREG(info.st_mode)) return bad("not a regular file");
  ElfImage image;
  image.file_ = BoundedFile(fd, static_cast<std::uint64_t>(info.st_size));
  if (auto done = image.load_header(); !done) return fail(done.error());
  return image;
}

Status ElfImage::load_header() {
  if (file_.size() < EI_NIDENT) return bad("not an ELF file");
  const auto ident = hash_window_.at(file_, 0, EI_NIDENT, "ELF identification bytes");
  if (!ident) return fail(ident.error());
  if (auto done = check_ident(*ident); !done) return done;
  const auto header = load_at<Elf64_Ehdr>(hash_window_, file_, 0, "ELF header bytes");
  if (!header) return fail(header.error());
  if (header->e_machine == EM_X86_64) {
    machine_ = Machine::kX86_64;
  } else if (header->e_machine == EM_AARCH64) {
    machine_ = Machine::kAarch64;
  } else {
    return bad(fmt::format("machine {} is neither x86-64 nor aarch64", header->e_machine));
  }
  if (header->e_type != ET_EXEC && header->e_type != ET_DYN) {
    return bad(
        fmt::format("ELF type {} is neither a program nor a shared library", header->e_type));
  }
  fixed_address_ = header->e_type == ET_EXEC;
  if (header->e_phentsize != sizeof(Elf64_Phdr)) {
    return bad(fmt::format("program headers of {} bytes each", header->e_phentsize));
  }
  if (header->e_phnum > kMaxProgramHeaders) {
    return bad(
        fmt::format("{} program headers, more than {}", header->e_phnum, kMaxProgramHeaders));
  }
  if (header->e_shoff != 0 && header->e_shentsize == sizeof(Elf64_Shdr)) {
    section_headers_ = {header->e_shoff, header->e_shnum};
    section_names_ = header->e_shstrndx;
  }
  return load_segments(header->e_phoff, header->e_phnum);
}

Status ElfImage::load_segments(std::uint64_t offset, std::uint64_t count) {
  const auto end = add(offset, count * sizeof(Elf64_Phdr));
  if (!end || *end > file_.size()) {
    return bad(fmt::format("truncated: program headers end at {}, file has {} bytes",
                           end ? fmt::to_string(*end) : "2^64 and more", file_.size()));
  }
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto entry = load_at<Elf64_Phdr>(hash_window_, file_, offset + i * sizeof(Elf64_Phdr),
                                           "program headers");
    if (!entry) return fail(entry.error());
    has_interpreter_ = has_interpreter_ || entry->p_type == PT_INTERP;
    if (entry->p_type != PT_LOAD && entry->p_type != PT_DYNAMIC) continue;
    const auto file_end = add(entry->p_offset, entry->p_filesz);
    if (!file_end || !add(entry->p_vaddr, entry->p_filesz)) {
      return bad(fmt::format("program header {}: offset or address overflows", i));
    }
    if (*file_end > file_.size()) {
      return bad(fmt::format("truncated: segment {} ends at {}, file has {} bytes", i, *file_end,
                             file_.size()));
    }
    if (entry->p_type == PT_DYNAMIC) {
      dynamic_range_ = {entry->p_offset, entry->p_filesz};
    } else {
      segments_.push_back({entry->p_vaddr, entry->p_offset, entry->p_filesz,
                           (entry->p_flags & PF_X) != 0, (entry->p_flags & PF_W) != 0});
    }
  }
  return {};
}

Status ElfImage::load_dynamic() {
  if (dynamic_) return {};
  std::uint64_t symtab = 0, strtab = 0, gnu_hash = 0, sysv_hash = 0;
  Dynamic dynamic;
  const std::uint64_t size =
      std::min(dynamic_range_.size, kMaxDynamicBytes) / sizeof(Elf64_Dyn) * sizeof(Elf64_Dyn);
  std::vector<std::byte> table(size);
  if (auto done = file_.read(dynamic_range_.offset, table, "dynamic section bytes"); !done)
    return done;
  for (std::size_t at = 0; at < size; at += sizeof(Elf64_Dyn)) {
    const auto entry = load<Elf64_Dyn>(std::span(table).subspan(at));
    if (entry.d_tag == DT_NULL) break;
    if (entry.d_tag == DT_SYMTAB) symtab = entry.d_un.d_ptr;
    if (entry.d_tag == DT_STRTAB) strtab = entry.d_un.d_ptr;
    if (entry.d_tag == DT_STRSZ) dynamic.strtab_size = entry.d_un.d_val;
    if (entry.d_tag == DT_GNU_HASH) gnu_hash = entry.d_un.d_ptr;
    if (entry.d_tag == DT_HASH) sysv_hash = entry.d_un.d_ptr;
    if (entry.d_tag == DT_FLAGS_1) dynamic.pie = (entry.d_un.d_val & DF_1_PIE) != 0;
    if (entry.d_tag == DT_SONAME) {
      dynamic.soname = entry.d_un.d_val;
      dynamic.has_soname = true;
    }
  }
  const auto place = [this](std::uint64_t vaddr, std::string_view what,
                            std::uint64_t& out) -> Status {
    if (vaddr == 0) return {};
    const auto offset = data_offset(vaddr, what);
    if (!offset) return fail(offset.error());
    out = *offset;
    return {};
  };
  if (auto done = place(symtab, "dynamic symbol table", dynamic.symtab); !done) return done;
  if (auto done = place(strtab, "dynamic string table", dynamic.strtab); !done) return done;
  if (auto done = place(gnu_hash, "GNU hash table", dynamic.gnu_hash); !done) return done;
  if (auto done = place(sysv_hash, "hash table", dynamic.sysv_hash); !done) return done;
  dynamic.strtab_size = std::min(dynamic.strtab_size, file_.size() - dynamic.strtab);
  dynamic_ = dynamic;
  return {};
}

Status ElfImage::load_sections() {
  if (sections_) return {};
  std::vector<Section> sections;
  std::uint64_t count = section_headers_.size;
  if (section_headers_.offset != 0 && count == 0) {  // the real count is in the first header
    const auto first =
        load_at<Elf64_Shdr>(chain_window_, file_, section_headers_.offset, "section headers");
    if (!first) return fail(first.error());
    count = first->sh_size;
  }
  if (count > kMaxSections)
    return bad(fmt::format("{} sections, more than {}", count, kMaxSections));
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto offset = add(section_headers_.offset, i * sizeof(Elf64_Shdr));
    if (!offset) return bad("section headers are out of range");
    const auto entry = load_at<Elf64_Shdr>(chain_window_, file_, *offset, "section headers");
    if (!entry) return fail(entry.error());
    sections.push_back(
        {entry->sh_name, entry->sh_type, entry->sh_link, {entry->sh_offset, entry->sh_size}});
  }
  sections_ = std::move(sections);
  return {};
}

Result<bool> ElfImage::is_program() {
  if (fixed_address_) return true;
  if (auto done = load_dynamic(); !done) return fail(done.error());
  return dynamic_->pie || (has_interpreter_ && !dynamic_->has_soname);
}

Result<std::string> ElfImage::soname() {
  if (auto done = load_dynamic(); !done) return fail(done.error());
  if (!dynamic_->has_soname || dynamic_->strtab == 0) return std::string();
  if (dynamic_->soname >= dynamic_->strtab_size)
    return bad("DT_SONAME is outside of the string table");
  const std::size_t most =
      std::min<std::uint64_t>(kMaxName, dynamic_->strtab_size - dynamic_->soname);
  const auto bytes =
      string_window_.at(file_, dynamic_->strtab + dynamic_->soname, most, "DT_SONAME bytes");
  if (!bytes) return fail(bytes.error());
  const std::size_t length = as_text(*bytes).find('\0');
  if (length == std::string_view::npos) return bad("DT_SONAME has no end");
  return std::string(as_text(*bytes).substr(0, length));
}

Result<std::vector<Symbol>> ElfImage::find_exported(std::span<const std::string_view> names) {
  std::vector<Symbol> found(names.size());
  if (auto done = load_dynamic(); !done) return fail(done.error());
  if (dynamic_->symtab == 0 || dynamic_->strtab == 0) return found;
  Status done;
  if (dynamic_->gnu_hash != 0) {
    done = find_by_gnu_hash(names, found);
  } else if (dynamic_->sysv_hash != 0) {
    done = find_by_sysv_hash(names, found);
  } else {
    done = find_by_scan(names, found);
  }
  if (!done) return fail(done.error());
  return found;
}

Result<bool> ElfImage::matches(std::uint64_t index, std::string_view name, Symbol& found) {
  const auto entry = load_at<Elf64_Sym>(
      symbol_window_, file_, dynamic_->symtab + index * sizeof(Elf64_Sym), "dynamic symbols");
  if (!entry) return fail(entry.error());
  if (entry->st_name >= dynamic_->strtab_size)
    return bad("a symbol's name is outside of the string table");
  if (name.size() >= dynamic_->strtab_size - entry->st_name) return false;
  const auto bytes = string_window_.at(file_, dynamic_->strtab + entry->st_name, name.size() + 1,
                                       "dynamic symbol names");
  if (!bytes) return fail(bytes.error());
  if (!is_string(as_text(*bytes), name)) return false;
  const Symbol symbol = classify(*entry, false);
  keep_better(found, symbol);
  return symbol.kind != SymbolKind::kAbsent;
}

Status ElfImage::find_by_gnu_hash(std::span<const std::string_view> names,
                                  std::vector<Symbol>& found) {
  const auto header =
      load_at<GnuHashHeader>(hash_window_, file_, dynamic_->gnu_hash, "GNU hash table");
  if (!header) return fail(header.error());
  if (header->buckets == 0)
    return {};  // an empty table, as ld writes it for a file without exports
  if (header->bloom_words == 0 || (header->bloom_words & (header->bloom_words - 1)) != 0 ||
      header->bloom_shift >= 32) {
    return bad("GNU hash table: impossible bloom filter");
  }
  const std::uint64_t bloom = dynamic_->gnu_hash + sizeof(GnuHashHeader);
  const std::uint64_t buckets = bloom + 8 * std::uint64_t{header->bloom_words};
  const std::uint64_t chains = buckets + 4 * std::uint64_t{header->buckets};
  auto passed = filter_by_bloom(hash_window_, file_, *header, bloom, names);
  if (!passed) return fail(passed.error());
  std::sort(passed->begin(), passed->end(), [&](const WantedName& a, const WantedName& b) {
    return a.hash % header->buckets < b.hash % header->buckets;
  });
  for (const WantedName& want : *passed) {
    const auto first = load_at<std::uint32_t>(
        hash_window_, file_, buckets + 4 * std::uint64_t{want.hash % header->buckets},
        "GNU hash buckets");
    if (!first) return fail(first.error());
    if (*first < header->first_symbol) continue;  // 0: an empty bucket
    for (std::uint64_t index = *first, steps = 0;; ++index, ++steps) {
      if (steps == kMaxChain)
        return bad(fmt::format("GNU hash chain is longer than {}", kMaxChain));
      const auto hash = load_at<std::uint32_t>(
          chain_window_, file_, chains + 4 * (index - header->first_symbol), "GNU hash chains");
      if (!hash) return fail(hash.error());
      if ((*hash | 1) == (want.hash | 1)) {
        const auto match = matches(index, names[want.index], found[want.index]);
        if (!match) return fail(match.error());
        if (*match) break;
      }
      if ((*hash & 1) != 0) break;
    }
  }
  return {};
}

Status ElfImage::find_by_sysv_hash(std::span<const std::string_view> names,
                                   std::vector<Symbol>& found) {
  struct Header {
    std::uint32_t buckets, chains;
  };
  const auto header = load_at<Header>(hash_window_, file_, dynamic_->sysv_hash, "hash table bytes");
  if (!header) return fail(header.error());
  if (header->buckets == 0) return {};
  const std::uint64_t buckets = dynamic_->sysv_hash + sizeof(Header);
  const std::uint64_t chains = buckets + 4 * std::uint64_t{header->buckets};
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i].empty() || names[i].size() > kMaxName) continue;
    auto index = load_at<std::uint32_t>(
        hash_window_, file_, buckets + 4 * std::uint64_t{sysv_hash_of(names[i]) % header->buckets},
        "hash buckets");
    for (std::size_t steps = 0; index && *index != STN_UNDEF; ++steps) {
      if (*index >= header->chains) return bad("hash chain leaves the symbol table");
      if (steps == kMaxChain)
        return bad(fmt::format("hash chain is longer than {} or a loop", kMaxChain));
      const auto match = matches(*index, names[i], found[i]);
      if (!match) return fail(match.error());
      if (*match) break;
      index = load_at<std::uint32_t>(chain_window_, file_, chains + 4 * std::uint64_t{*index},
                                     "hash chains");
    }
    if (!index) return fail(index.error());
  }
  return {};
}

Status ElfImage::find_by_scan(std::span<const std::string_view> names, std::vector<Symbol>& found) {
  if (auto done = load_sections(); !done) return done;
  // Without a hash table nothing says how many symbols there are, except the section header or, by
  // the habit of every linker, the string table that follows.
  Range symbols{dynamic_->symtab, 0};
  if (dynamic_->strtab > dynamic_->symtab) symbols.size = dynamic_->strtab - dynamic_->symtab;
  for (const Section& section : *sections_) {
    if (section.type == SHT_DYNSYM && section.range.offset == dynamic_->symtab)
      symbols = section.range;
  }
  return scan_table(symbols, {dynamic_->strtab, dynamic_->strtab_size}, false, names, found);
}

Result<std::vector<Symbol>> ElfImage::find_in_symtab(std::span<const std::string_view> names) {
  std::vector<Symbol> found(names.size());
  if (auto done = load_sections(); !done) return fail(done.error());
  for (const Section& section : *sections_) {
    if (section.type != SHT_SYMTAB) continue;
    if (section.link >= sections_->size()) return bad(".symtab names no string table");
    const Range strings = (*sections_)[section.link].range;
    if (auto done = scan_table(section.range, strings, true, names, found); !done)
      return fail(done.error());
    break;
  }
  return found;
}

Status ElfImage::scan_table(Range symbols, Range strings, bool with_locals,
                            std::span<const std::string_view> names, std::vector<Symbol>& found) {
  if (symbols.size > kMaxSymbolBytes || strings.size > kMaxStringBytes) {
    return bad(fmt::format("symbol table of {} bytes with {} bytes of names exceeds {} and {} MiB",
                           symbols.size, strings.size, kMaxSymbolBytes / kMiB,
                           kMaxStringBytes / kMiB));
  }
  NameFinder finder(names);
  if (finder.empty()) return {};
  std::vector<std::byte> block(kScanBytes);
  for (std::uint64_t at = 0; at < strings.size;) {
    const std::size_t size = std::min<std::uint64_t>(block.size(), strings.size - at);
    const auto chunk = std::span(block).first(size);
    if (auto done = file_.read(strings.offset + at, chunk, "symbol names"); !done) return done;
    const bool last = at + size == strings.size;
    const std::size_t limit = last ? size : size - finder.longest();  // the next read begins there
    if (auto done = finder.search(as_text(chunk), limit, at); !done) return done;
    at += limit;
  }
  if (finder.hits().empty()) return {};  // the usual case: the symbols themselves are not read
  const std::uint64_t table = symbols.size / sizeof(Elf64_Sym) * sizeof(Elf64_Sym);
  for (std::uint64_t at = 0; at < table; at += block.size()) {
    const auto chunk = std::span(block).first(std::min<std::uint64_t>(block.size(), table - at));
    if (auto done = file_.read(symbols.offset + at, chunk, "symbols"); !done) return done;
    for (std::size_t i = 0; i < chunk.size(); i += sizeof(Elf64_Sym)) {
      const auto entry = load<Elf64_Sym>(chunk.subspan(i));
      const auto [begin, end] = finder.hits().equal_range(entry.st_name);
      for (auto hit = begin; hit != end; ++hit) {
        keep_better(found[hit->second], classify(entry, with_locals));
      }
    }
  }
  return {};
}

Result<std::uint64_t> ElfImage::data_offset(std::uint64_t vaddr, std::string_view what) const {
  for (const Segment& segment : segments_) {
    if (vaddr >= segment.vaddr && vaddr - segment.vaddr < segment.file_bytes) {
      return segment.offset + (vaddr - segment.vaddr);
    }
  }
  return bad(fmt::format("{} at address {:#x} is in no segment", what, vaddr));
}

Result<std::uint64_t> ElfImage::code_offset(std::uint64_t vaddr) const {
  for (const Segment& segment : segments_) {
    if (segment.executable && vaddr >= segment.vaddr &&
        vaddr - segment.vaddr < segment.file_bytes) {
      return segment.offset + (vaddr - segment.vaddr);
    }
  }
  return bad(fmt::format("address {:#x} is in no executable segment", vaddr));
}

Result<std::uint64_t> ElfImage::probe_offset(std::uint64_t file_offset) {
  constexpr unsigned char kEndbr64[] = {0xf3, 0x0f, 0x1e, 0xfa};
  constexpr unsigned char kBtiC[] = {0x5f, 0x24, 0x03, 0xd5};
  const auto segment = std::find_if(segments_.begin(), segments_.end(), [&](const Segment& s) {
    return s.executable && file_offset >= s.offset && file_offset - s.offset < s.file_bytes;
  });
  if (segment == segments_.end()) {
    return bad(fmt::format("offset {:#x} is in no executable segment", file_offset));
  }
  if (segment->file_bytes - (file_offset - segment->offset) <= sizeof(kEndbr64)) return file_offset;
  std::byte code[sizeof(kEndbr64)];
  if (auto done = file_.read(file_offset, code, "function bytes"); !done) return fail(done.error());
  const auto* marker = machine_ == Machine::kX86_64 ? kEndbr64 : kBtiC;
  return std::memcmp(code, marker, sizeof(code)) == 0 ? file_offset + sizeof(code) : file_offset;
}

Result<std::vector<std::byte>> ElfImage::read_at(std::uint64_t vaddr, std::size_t size) {
  for (const Segment& segment : segments_) {
    if (vaddr < segment.vaddr || vaddr - segment.vaddr >= segment.file_bytes) continue;
    const std::uint64_t skipped = vaddr - segment.vaddr;
    std::vector<std::byte> bytes(
        std::min<std::uint64_t>({size, kMaxReadAt, segment.file_bytes - skipped}));
    if (auto done = file_.read(segment.offset + skipped, bytes, "bytes of a segment"); !done) {
      return fail(done.error());
    }
    return bytes;
  }
  return bad(fmt::format("address {:#x} is in no segment", vaddr));
}

Result<std::optional<ElfImage::Range>> ElfImage::section(std::string_view name) {
  if (auto done = load_sections(); !done) return fail(done.error());
  if (name.size() > kMaxName || section_names_ >= sections_->size()) return std::optional<Range>();
  const Range names = (*sections_)[section_names_].range;
  for (const Section& section : *sections_) {
    if (section.type == SHT_NOBITS || section.type == SHT_NULL) continue;
    if (section.name >= names.size || name.size() >= names.size - section.name) continue;
    const auto offset = add(names.offset, section.name);
    if (!offset) return bad("section names are out of range");
    const auto bytes = string_window_.at(file_, *offset, name.size() + 1, "section names");
    if (!bytes) return fail(bytes.error());
    if (!is_string(as_text(*bytes), name)) continue;
    const auto end = add(section.range.offset, section.range.size);
    if (!end || *end > file_.size()) {
      return bad(fmt::format("truncated: section {} is outside of the file", name));
    }
    return std::optional<Range>(section.range);
  }
  return std::optional<Range>();
}

}  // namespace ingero::discover
