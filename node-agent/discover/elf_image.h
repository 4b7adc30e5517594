// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace ingero::discover {

enum class Machine { kX86_64, kAarch64 };

/// What a name stands for in a symbol table.
enum class SymbolKind {
  kAbsent,    ///< not there, or only imported
  kFunction,  ///< a defined STT_FUNC
  kIfunc,     ///< STT_GNU_IFUNC: the address is that of the resolver, not of the function
  kOther,     ///< defined, but data, TLS, absolute, ...
};

struct Symbol {
  SymbolKind kind = SymbolKind::kAbsent;
  std::uint64_t vaddr = 0;
  std::uint64_t size = 0;                     ///< bytes; 0 where the producer did not say
  std::vector<std::uint64_t> other_versions;  ///< addresses of exported functions of the same name
};

/// One PT_LOAD. Checked at create(): neither range overflows, the file range lies in the file.
struct Segment {
  std::uint64_t vaddr = 0;
  std::uint64_t offset = 0;
  std::uint64_t file_bytes = 0;
  bool executable = false;
  bool writable = false;
};

/// pread with a size check and a budget of bytes and of the thread's processor time: what a crafted file
/// can cost is bounded.
class BoundedFile {
 public:
  BoundedFile() = default;
  BoundedFile(int fd, std::uint64_t size);

  /// Fills `out`, all of it or an error that says what is truncated (`what` names the thing read).
  Status read(std::uint64_t offset, std::span<std::byte> out, std::string_view what);
  std::uint64_t size() const { return size_; }
  std::uint64_t bytes_read() const { return bytes_read_; }
  std::uint64_t reads() const { return reads_; }

 private:
  int fd_ = -1;
  std::uint64_t size_ = 0;
  std::uint64_t bytes_read_ = 0;
  std::uint64_t reads_ = 0;
  std::chrono::nanoseconds cpu_end_{0};
};

/// The last block read from one region, so that neighbouring small reads cost one pread.
class ReadWindow {
 public:
  /// `size` bytes at `offset`, valid until the next call. `size` is at most kBytes / 2.
  Result<std::span<const std::byte>> at(BoundedFile& file, std::uint64_t offset, std::size_t size,
                                        std::string_view what);
  static constexpr std::size_t kBytes = 8192;

 private:
  std::uint64_t begin_ = 0;
  std::vector<std::byte> block_;
};

/// Reader of one 64-bit little-endian ELF file, executable or shared library, that may be hostile.
///
/// Reads with pread only: a file that shrinks under the reader gives an error, where a mapping
/// would give SIGBUS. All offsets and sizes of the file are checked against overflow and file size
/// before use, all loops and the bytes read are bounded. Not thread-safe (it keeps read buffers).
class ElfImage {
 public:
  /// Reads the ELF header and the program headers. `fd` is borrowed: it must outlive the image.
  static Result<ElfImage> create(int fd);

  Machine machine() const { return machine_; }
  std::span<const Segment> segments() const { return segments_; }
  /// True for a program (ET_EXEC, or ET_DYN that is marked as a position independent executable).
  Result<bool> is_program();
  /// DT_SONAME; empty when there is none.
  Result<std::string> soname();

  /// What .dynsym says about each name; the result is parallel to `names`. Found by DT_GNU_HASH,
  /// else DT_HASH, else by a scan. Needs no section headers. Of several versions of a name
  /// all are found: which one a program is bound to, stands in the program. A file with no dynamic
  /// section exports nothing.
  Result<std::vector<Symbol>> find_exported(std::span<const std::string_view> names);

  /// The same from .symtab, local symbols included, by streaming through it once; all absent in a
  /// stripped file. Fails when the tables are larger than the limits (64 MiB, names 128 MiB).
  Result<std::vector<Symbol>> find_in_symtab(std::span<const std::string_view> names);

  /// Where code at `vaddr` stands in the file; fails when it is in no executable segment.
  Result<std::uint64_t> code_offset(std::uint64_t vaddr) const;

  /// `file_offset` moved past a leading endbr64 (amd64) or `bti c` (arm64) and past nothing else.
  Result<std::uint64_t> probe_offset(std::uint64_t file_offset);

  /// Up to `size` bytes at `vaddr`, fewer where the segment ends; at most 64 KiB.
  Result<std::vector<std::byte>> read_at(std::uint64_t vaddr, std::size_t size);

  /// A section by name, as file offset and size; nullopt when there are no section headers or the
  /// section has no bytes in the file.
  struct Range {
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
  };
  Result<std::optional<Range>> section(std::string_view name);

  BoundedFile& file() { return file_; }

 private:
  struct Dynamic {
    std::uint64_t symtab = 0;  ///< file offsets; 0 = not there
    std::uint64_t strtab = 0;
    std::uint64_t strtab_size = 0;
    std::uint64_t gnu_hash = 0;
    std::uint64_t sysv_hash = 0;
    std::uint64_t soname = 0;  ///< offset in strtab
    bool has_soname = false;
    bool pie = false;
  };
  struct Section {
    std::uint32_t name = 0;
    std::uint32_t type = 0;
    std::uint32_t link = 0;
    Range range;
  };

  Status load_header();
  Status load_segments(std::uint64_t offset, std::uint64_t count);
  Status load_dynamic();
  Status load_sections();
  Result<std::uint64_t> data_offset(std::uint64_t vaddr, std::string_view what) const;
  Status matches(std::uint64_t index, std::string_view name, Symbol& found);
  Status find_by_gnu_hash(std::span<const std::string_view> names, std::vector<Symbol>& found);
  Status find_by_sysv_hash(std::span<const std::string_view> names, std::vector<Symbol>& found);
  Status find_by_scan(std::span<const std::string_view> names, std::vector<Symbol>& found);
  Status scan_table(Range symbols, Range strings, bool with_locals,
                    std::span<const std::string_view> names, std::vector<Symbol>& found);

  BoundedFile file_;
  Machine machine_ = Machine::kX86_64;
  bool fixed_address_ = false;    ///< ET_EXEC
  bool has_interpreter_ = false;  ///< PT_INTERP
  std::vector<Segment> segments_;
  Range dynamic_range_;
  Range section_headers_;
  std::uint32_t section_names_ = 0;
  std::optional<Dynamic> dynamic_;
  std::optional<std::vector<Section>> sections_;
  ReadWindow hash_window_;  // the headers too: .gnu.hash most often follows them in the same block
  ReadWindow chain_window_;
  ReadWindow symbol_window_;
  ReadWindow string_window_;
};

}  // namespace ingero::discover
