// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "model/functions.h"

namespace ingero::discover {

/// One place in a file where a probe goes.
struct ProbePoint {
  const model::ApiFunction* function = nullptr;  ///< never null; rows live for ever
  std::uint64_t file_offset = 0;                 ///< already past endbr64 or `bti c`
  bool moved = false;                            ///< it stood 4 bytes earlier
};

/// What a file is, by its soname (else its file name) and by what it exports.
enum class LibraryKind {
  kNccl,
  kRccl,
  kCudart,
  kCuda,   ///< the driver API, libcuda.so.1
  kOther,  ///< has our functions under another name: static NCCL or cudart, a preloaded shim
};

std::string_view to_string(LibraryKind kind);

struct LibraryImage {
  LibraryKind kind = LibraryKind::kOther;
  std::string version;  ///< "2.28.9" for NCCL and RCCL, "13.0" for cudart; empty when unknown
  std::string soname;   ///< as the file says; may hold any bytes but zero
  std::vector<ProbePoint> points;  ///< in the order of the table, one per offset
  std::vector<std::pair<std::string, std::string>> refused;  ///< symbol, reason
  std::vector<std::pair<std::string, std::string>>
      aliases;  ///< symbol without point, symbol that has it
};

/// Which traced functions the ELF file has, and where. `fd` is borrowed and read with pread only.
///
/// A library counts by what it exports (.dynsym); a program also by its .symtab, since that is
/// where statically linked NCCL and cudart are. nullopt: none of our functions is there. An image
/// without points but with refusals is possible (all of them indirect functions). `name_hint` is
/// the path or file name; it decides nothing but the kind and stands in errors. Errors: not an ELF
/// file, truncated, inconsistent, or larger than the limits of ElfImage; E2BIG: more processor time than a
/// file is worth; any other code: reading failed, which says nothing about the content. `bytes_read`, where
/// given, gets what was read of the file.
Result<std::optional<LibraryImage>> inspect_library(int fd, std::string_view name_hint,
                                                    std::uint64_t* bytes_read = nullptr);

/// Version constants as text; nullopt for a number that cannot be one. Exposed for tests.
std::optional<std::string> nccl_version_text(std::uint32_t code);    ///< 22809 -> "2.28.9"
std::optional<std::string> cudart_version_text(std::uint32_t code);  ///< 13000 -> "13.0"

}  // namespace ingero::discover
