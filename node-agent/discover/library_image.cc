// SPDX-License-Identifier: Apache-2.0
#include "discover/library_image.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>

#include "discover/elf_image.h"
#include "discover/safe_open.h"

namespace ingero::discover {
namespace {

constexpr std::size_t kVersionCodeBytes = 96;  // of a version function, from its first byte
constexpr std::size_t kCalleeBytes = 24;       // amd64 stores after 5 bytes, arm64 after 16
constexpr std::size_t kMaxCalls = 8;           // followed from a version function, one level deep
constexpr std::uint64_t kMaxTextSearch = 64ULL * 1024 * 1024;
constexpr std::string_view kNcclVersion = "ncclGetVersion";
constexpr std::string_view kCudartVersion = "cudaRuntimeGetVersion";

using VersionText = std::optional<std::string> (*)(std::uint32_t);
using Code = std::span<const std::byte>;

template <typename T>
T load(Code code, std::size_t at) {
  T value;
  std::memcpy(&value, code.data() + at, sizeof(T));
  return value;
}

/// `movl $imm32, (%reg)`: c7, then a ModRM byte that names a plain register as the address.
std::optional<std::string> amd64_stored_version(Code code, VersionText text) {
  for (std::size_t at = 0; at + 6 <= code.size(); ++at) {
    if (code[at] != std::byte{0xc7}) continue;
    const auto mod_rm = std::to_integer<unsigned>(code[at + 1]);
    if (mod_rm > 7 || mod_rm == 4 || mod_rm == 5) continue;
    if (auto version = text(load<std::uint32_t>(code, at + 2))) return version;
  }
  return std::nullopt;
}

/// movz (and movk) into a w register, then `str w, [x]`.
std::optional<std::string> arm64_stored_version(Code code, VersionText text) {
  std::array<std::optional<std::uint32_t>, 32> registers;
  for (std::size_t at = 0; at + 4 <= code.size(); at += 4) {
    const auto word = load<std::uint32_t>(code, at);
    const std::uint32_t low = word & 0x1f;
    const std::uint32_t value = (word >> 5) & 0xffff;
    if ((word & 0xffe00000) == 0x52800000) registers[low] = value;
    if ((word & 0xffe00000) == 0x52a00000) registers[low] = value << 16;
    if ((word & 0xffe00000) == 0x72a00000 && registers[low]) {
      registers[low] = (*registers[low] & 0xffff) | (value << 16);
    }
    if ((word & 0xfffffc00) == 0xb9000000 && registers[low]) {
      if (auto version = text(*registers[low])) return version;
    }
  }
  return std::nullopt;
}

std::optional<std::string> stored_version(Machine machine, Code code, VersionText text) {
  switch (machine) {
    case Machine::kX86_64: return amd64_stored_version(code, text);
    case Machine::kAarch64: return arm64_stored_version(code, text);
  }
  return std::nullopt;
}

/// Addresses that the code calls directly.
std::vector<std::uint64_t> call_targets(Machine machine, Code code, std::uint64_t vaddr) {
  std::vector<std::uint64_t> targets;
  const bool arm64 = machine == Machine::kAarch64;
  for (std::size_t at = 0; at + 5 <= code.size() && targets.size() < kMaxCalls;
       at += arm64 ? 4 : 1) {
    if (arm64) {
      const auto word = load<std::uint32_t>(code, at);
      if ((word & 0xfc000000) != 0x94000000) continue;
      const std::int64_t words = static_cast<std::int32_t>(word << 6) >> 6;
      targets.push_back(vaddr + at + static_cast<std::uint64_t>(words * 4));
    } else if (code[at] == std::byte{0xe8}) {
      const std::int64_t relative = load<std::int32_t>(code, at + 1);
      targets.push_back(vaddr + at + 5 + static_cast<std::uint64_t>(relative));
    }
  }
  return targets;
}

/// The constant that a `int f(int* version)` stores, in itself or (cudart) in a function it calls.
std::string version_from_code(ElfImage& image, const Symbol& function, VersionText text) {
  if (function.kind != SymbolKind::kFunction) return {};
  const std::size_t own = function.size == 0
                              ? kVersionCodeBytes
                              : std::min<std::uint64_t>(function.size, kVersionCodeBytes);
  const auto code = image.read_at(function.vaddr, own);
  if (!code) return {};
  if (auto version = stored_version(image.machine(), *code, text)) return *version;
  for (const std::uint64_t target : call_targets(image.machine(), *code, function.vaddr)) {
    if (!image.code_offset(target)) continue;  // bytes that only look like a call
    // Its size is not known: no more than a check of the pointer and the store.
    const auto callee = image.read_at(target, kCalleeBytes);
    if (!callee) continue;
    if (auto version = stored_version(image.machine(), *callee, text)) return *version;
  }
  return {};
}

/// "NCCL version 2.28.9+cuda13.0" -> "2.28.9", wherever it begins in `text`.
std::string version_in_text(std::string_view text) {
  constexpr std::string_view kMark = "CCL version ";
  for (std::size_t at = text.find(kMark); at != std::string_view::npos;
       at = text.find(kMark, at + 1)) {
    if (at == 0 || (text[at - 1] != 'N' && text[at - 1] != 'R')) continue;
    const std::string_view rest = text.substr(at + kMark.size(), 16);
    const std::size_t end = std::min(rest.find_first_not_of("0123456789."), rest.size());
    const std::string_view version = rest.substr(0, end);
    if (std::count(version.begin(), version.end(), '.') != 2 || version.back() == '.') continue;
    if (version.front() == '.' || version.find("..") != std::string_view::npos) continue;
    return std::string(version);
  }
  return {};
}

std::string search_text(BoundedFile& file, std::uint64_t offset, std::uint64_t size) {
  constexpr std::size_t kBlock = 256 * 1024;
  constexpr std::size_t kOverlap = 64;  // longer than the text looked for
  std::vector<std::byte> block(kBlock);
  for (std::uint64_t at = 0; at < size; at += kBlock - kOverlap) {
    const auto part = std::span(block).first(std::min<std::uint64_t>(kBlock, size - at));
    if (!file.read(offset + at, part, "read-only data")) return {};
    std::string version =
        version_in_text({reinterpret_cast<const char*>(part.data()), part.size()});
    if (!version.empty()) return version;
  }
  return {};
}

/// For libraries whose version function has no constant of its own, such as RCCL's.
std::string version_from_text(ElfImage& image) {
  const auto rodata = image.section(".rodata");
  if (rodata && *rodata) {
    return search_text(image.file(), (*rodata)->offset, std::min((*rodata)->size, kMaxTextSearch));
  }
  std::uint64_t left = kMaxTextSearch;
  for (const Segment& segment : image.segments()) {
    if (segment.writable) continue;
    const std::uint64_t size = std::min(segment.file_bytes, left);
    std::string version = search_text(image.file(), segment.offset, size);
    if (!version.empty()) return version;
    left -= size;
  }
  return {};
}

bool is_named(std::string_view file_name, std::string_view stem) {
  if (!file_name.starts_with(stem)) return false;
  // "libnccl.so.2", and "libnccl-8a5f2f20.so.2" as wheel repair tools write it.
  return file_name.size() > stem.size() &&
         (file_name[stem.size()] == '.' || file_name[stem.size()] == '-');
}

bool has_source(const LibraryImage& library, api_source source) {
  return std::any_of(
      library.points.begin(), library.points.end(),
      [source](const ProbePoint& point) { return point.function->source == source; });
}

LibraryKind kind_of(const LibraryImage& library, std::string_view name) {
  const bool nccl = has_source(library, API_SOURCE_NCCL);
  if (nccl && is_named(name, "libnccl")) return LibraryKind::kNccl;
  if (nccl && is_named(name, "librccl")) return LibraryKind::kRccl;
  if (has_source(library, API_SOURCE_CUDA) && is_named(name, "libcudart"))
    return LibraryKind::kCudart;
  if (has_source(library, API_SOURCE_DRIVER) && is_named(name, "libcuda"))
    return LibraryKind::kCuda;
  return LibraryKind::kOther;
}

/// The wanted names and what the file's symbol tables say about them.
struct Lookup {
  std::vector<std::string_view> names;  // the rows of the table, then the two version functions
  std::vector<Symbol> symbols;          // parallel
};

Status look_up_in_program(ElfImage& image, Lookup& lookup, LibraryImage& library) {
  auto local = image.find_in_symtab(lookup.names);
  if (!local) {
    const bool exported =
        std::any_of(lookup.symbols.begin(), lookup.symbols.end(),
                    [](const Symbol& s) { return s.kind != SymbolKind::kAbsent; });
    if (!exported) return fail(local.error());
    library.refused.emplace_back(".symtab", local.error().cause);
    return {};
  }
  for (std::size_t i = 0; i < lookup.symbols.size(); ++i) {
    if (lookup.symbols[i].kind != SymbolKind::kAbsent) continue;
    lookup.symbols[i] = (*local)[i];
    lookup.symbols[i].other_versions.clear();  // local functions of one name are no versions of it
  }
  return {};
}

Result<Lookup> look_up(ElfImage& image, LibraryImage& library) {
  Lookup lookup;
  for (const model::ApiFunction& function : model::api_functions()) {
    lookup.names.push_back(function.symbol);
  }
  lookup.names.push_back(kNcclVersion);
  lookup.names.push_back(kCudartVersion);
  auto exported = image.find_exported(lookup.names);
  if (!exported) return fail(exported.error());
  lookup.symbols = std::move(*exported);
  const auto program = image.is_program();
  if (!program) return fail(program.error());
  if (*program) {
    if (auto done = look_up_in_program(image, lookup, library); !done) return fail(done.error());
  }
  return lookup;
}

/// The reason why no probe goes there; empty when a point (or an alias) was added.
std::string add_point(ElfImage& image, const model::ApiFunction& function, std::uint64_t vaddr,
                      std::map<std::uint64_t, std::string_view>& taken, LibraryImage& library) {
  const auto offset = image.code_offset(vaddr);
  if (!offset) return offset.error().cause;
  const auto probe = image.probe_offset(*offset);
  if (!probe) return probe.error().cause;
  const auto [place, added] = taken.emplace(*probe, function.symbol);
  if (added) {
    library.points.push_back({&function, *probe, *probe != *offset});
  } else {
    library.aliases.emplace_back(function.symbol, place->second);
  }
  return {};
}

/// The same for every version that the function has.
std::string add_points(ElfImage& image, const model::ApiFunction& function, const Symbol& symbol,
                       std::map<std::uint64_t, std::string_view>& taken, LibraryImage& library) {
  switch (symbol.kind) {
    case SymbolKind::kAbsent: return {};
    case SymbolKind::kOther: return "not a function";
    case SymbolKind::kIfunc:
      return "indirect function (ifunc): the symbol is the address of its resolver";
    case SymbolKind::kFunction: break;
  }
  std::string reason = add_point(image, function, symbol.vaddr, taken, library);
  for (const std::uint64_t vaddr : symbol.other_versions) {
    std::string other = add_point(image, function, vaddr, taken, library);
    if (reason.empty()) reason = std::move(other);
  }
  return reason;
}

/// False when nothing but data carries our names.
bool add_points(ElfImage& image, const Lookup& lookup, LibraryImage& library) {
  const auto functions = model::api_functions();
  std::map<std::uint64_t, std::string_view> taken;
  bool confirmed = false;
  for (std::size_t i = 0; i < functions.size(); ++i) {
    const Symbol& symbol = lookup.symbols[i];
    confirmed =
        confirmed || symbol.kind == SymbolKind::kFunction || symbol.kind == SymbolKind::kIfunc;
    std::string reason = add_points(image, functions[i], symbol, taken, library);
    if (!reason.empty()) library.refused.emplace_back(functions[i].symbol, std::move(reason));
  }
  return confirmed;
}

std::string version_of(ElfImage& image, const Lookup& lookup, const LibraryImage& library,
                       std::string_view name) {
  const std::size_t rows = model::api_functions().size();
  if (has_source(library, API_SOURCE_NCCL)) {
    std::string version = version_from_code(image, lookup.symbols[rows], nccl_version_text);
    return version.empty() ? version_from_text(image) : version;
  }
  if (!has_source(library, API_SOURCE_CUDA)) return {};
  std::string version = version_from_code(image, lookup.symbols[rows + 1], cudart_version_text);
  constexpr std::string_view kSuffix = ".so.";
  const std::size_t suffix = name.find(kSuffix);
  if (version.empty() && library.kind == LibraryKind::kCudart && suffix != std::string_view::npos) {
    const std::string_view number = name.substr(suffix + kSuffix.size());
    if (number.find_first_not_of("0123456789.") == std::string_view::npos) version = number;
  }
  return version;
}

Result<std::optional<LibraryImage>> inspect(ElfImage& image, std::string_view name_hint) {
  LibraryImage library;
  const auto lookup = look_up(image, library);
  if (!lookup) return fail(lookup.error());
  if (!add_points(image, *lookup, library)) return std::optional<LibraryImage>();
  auto soname = image.soname();
  if (soname)
    library.soname = std::move(*soname);  // a broken one is no reason to lose the functions
  std::string_view name = library.soname.empty() ? name_hint : std::string_view(library.soname);
  name = name.substr(name.rfind('/') + 1);
  library.kind = kind_of(library, name);
  library.version = version_of(image, *lookup, library, name);
  return std::optional<LibraryImage>(std::move(library));
}

Result<std::optional<LibraryImage>> inspect(int fd, std::string_view name_hint,
                                            std::uint64_t* bytes_read) {
  auto image = ElfImage::create(fd);
  if (!image) return fail(image.error());
  auto library = inspect(*image, name_hint);
  if (bytes_read != nullptr) *bytes_read = image->file().bytes_read();
  return library;
}

}  // namespace

std::string_view to_string(LibraryKind kind) {
  switch (kind) {
    case LibraryKind::kNccl: return "nccl";
    case LibraryKind::kRccl: return "rccl";
    case LibraryKind::kCudart: return "cudart";
    case LibraryKind::kCuda: return "cuda";
    case LibraryKind::kOther: return "other";
  }
  return "other";
}

std::optional<std::string> nccl_version_text(std::uint32_t code) {
  // Until 2.8 the minor version had one digit of its own: X*1000 + Y*100 + Z.
  if (code >= 2000 && code < 2900) {
    return fmt::format("{}.{}.{}", code / 1000, code % 1000 / 100, code % 100);
  }
  if (code >= 20900 && code <= 99999) {
    return fmt::format("{}.{}.{}", code / 10000, code % 10000 / 100, code % 100);
  }
  return std::nullopt;
}

std::optional<std::string> cudart_version_text(std::uint32_t code) {
  if (code < 7000 || code > 99990 || code % 10 != 0) return std::nullopt;
  return fmt::format("{}.{}", code / 1000, code % 1000 / 10);
}

Result<std::optional<LibraryImage>> inspect_library(int fd, std::string_view name_hint,
                                                    std::uint64_t* bytes_read) {
  auto library = inspect(fd, name_hint, bytes_read);
  if (library) return library;
  Error error = library.error();
  error.operation = "inspect library";
  error.object = error.object.empty() ? escape_path(name_hint)
                                      : fmt::format("{}, {}", escape_path(name_hint), error.object);
  return fail(std::move(error));
}

}  // namespace ingero::discover
