// SPDX-License-Identifier: Apache-2.0
// Inside of the ELF reader: limits and small reads that its two source files share.
#pragma once

#include <elf.h>
#include <fmt/format.h>

#include <cstring>
#include <optional>
#include <span>

#include "discover/elf_image.h"

namespace ingero::discover {

inline constexpr std::uint64_t kMiB = 1024 * 1024;
inline constexpr std::uint64_t kMaxBytesRead = 320 * kMiB;  // per image, all reads together
inline constexpr std::chrono::seconds kMaxCpu{2};  // per image, of the thread that reads it
inline constexpr std::uint64_t kMaxProgramHeaders = 1024;
inline constexpr std::uint64_t kMaxSections = 16384;
inline constexpr std::uint64_t kMaxDynamicBytes = 64 * 1024;
inline constexpr std::uint64_t kMaxSymbolBytes = 64 * kMiB;
inline constexpr std::uint64_t kMaxStringBytes = 128 * kMiB;
inline constexpr std::size_t kMaxName =
    1024;  // of a wanted symbol, a soname or a section, in bytes
inline constexpr std::size_t kMaxChain =
    4096;  // steps along one hash chain; real ones have a few dozen
inline constexpr std::size_t kMaxNameHits =
    4096;  // places in a string table where wanted names stand
inline constexpr std::size_t kScanBytes =
    6144 * sizeof(Elf64_Sym);  // 144 KiB per read of a streaming scan
inline constexpr std::size_t kMaxReadAt = 64 * 1024;

inline tl::unexpected<Error> bad(std::string cause) {
  return fail(Error{"read ELF file", "", std::move(cause), "", 0});
}

/// a + b where the sum exists.
inline std::optional<std::uint64_t> add(std::uint64_t a, std::uint64_t b) {
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

inline std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// `bytes` begin with `name` and a terminating zero.
inline bool is_string(std::string_view bytes, std::string_view name) {
  return bytes.size() > name.size() && bytes[name.size()] == '\0' && bytes.starts_with(name);
}

}  // namespace ingero::discover
