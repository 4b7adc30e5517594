// SPDX-License-Identifier: Apache-2.0
// The part of ElfImage that looks names up: hash tables, and streaming scans where there are none.
#include <algorithm>
#include <map>
#include <unordered_map>

#include "discover/elf_bytes.h"
#include "discover/elf_image.h"

namespace ingero::discover {
namespace {

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
  Symbol symbol{SymbolKind::kOther, entry.st_value, entry.st_size, {}};
  const unsigned type = ELF64_ST_TYPE(entry.st_info);
  const bool in_section = entry.st_shndx < SHN_LORESERVE || entry.st_shndx == SHN_XINDEX;
  if (type == STT_FUNC && in_section) symbol.kind = SymbolKind::kFunction;
  if (type == STT_GNU_IFUNC && in_section) symbol.kind = SymbolKind::kIfunc;
  return symbol;
}

/// Real libraries have two or three versions of a function.
constexpr std::size_t kMaxVersions = 16;

/// A function beats everything else that has its name; else the first stays.
void keep_better(Symbol& held, const Symbol& next) {
  const bool both = held.kind == SymbolKind::kFunction && next.kind == SymbolKind::kFunction;
  if (both && next.vaddr != held.vaddr && held.other_versions.size() < kMaxVersions)
    held.other_versions.push_back(next.vaddr);
  if (held.kind == SymbolKind::kFunction || next.kind == SymbolKind::kAbsent) return;
  if (held.kind == SymbolKind::kAbsent || next.kind == SymbolKind::kFunction) held = next;
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

Status ElfImage::matches(std::uint64_t index, std::string_view name, Symbol& found) {
  const auto entry = load_at<Elf64_Sym>(
      symbol_window_, file_, dynamic_->symtab + index * sizeof(Elf64_Sym), "dynamic symbols");
  if (!entry) return fail(entry.error());
  if (entry->st_name >= dynamic_->strtab_size)
    return bad("a symbol's name is outside of the string table");
  if (name.size() >= dynamic_->strtab_size - entry->st_name) return {};
  const auto bytes = string_window_.at(file_, dynamic_->strtab + entry->st_name, name.size() + 1,
                                       "dynamic symbol names");
  if (!bytes) return fail(bytes.error());
  if (!is_string(as_text(*bytes), name)) return {};
  keep_better(found, classify(*entry, false));
  return {};
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

}  // namespace ingero::discover
