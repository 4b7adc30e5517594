// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ingero {

/// Reads "500MB", "2GiB", "1048576"; units B, kB, MB, GB, TB (powers of 1000), KiB, MiB, GiB, TiB, as
/// Kubernetes writes them Ki, Mi, Gi, Ti, and K, M, G, T (powers of 1024). nullopt: not a size, zero, or
/// more than 2^63.
std::optional<std::uint64_t> parse_byte_size(std::string_view text);

/// The same size as parse_byte_size() reads: "2GiB", "1500MiB", "1234B"; "0".
std::string format_byte_size(std::uint64_t bytes);

}  // namespace ingero
