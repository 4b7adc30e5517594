// SPDX-License-Identifier: Apache-2.0
#include "discover/elf_image.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "discover/elf_bytes.h"

namespace ingero::discover {
namespace {

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

}  // namespace

BoundedFile::BoundedFile(int fd, std::uint64_t size)
    : fd_(fd), size_(size), cpu_end_(thread_cpu_time() + kMaxCpu) {}

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
  if (thread_cpu_time() > cpu_end_) {
    return fail(Error{"read ELF file", "",
                      fmt::format("more than {} s of processor time would be needed for {}",
                                  kMaxCpu.count(), what),
                      "", E2BIG});
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
