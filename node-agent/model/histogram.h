// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "bpf/wire.h"

namespace ingero::model {

using DurationCounts = std::array<std::uint64_t, DURATION_BUCKETS>;
using SizeCounts = std::array<std::uint64_t, SIZE_BUCKETS>;

/// Upper end of duration bucket `bucket`, inclusive, in nanoseconds; infinity for the last one.
/// The layout is the BPF side's: see bpf/wire.h and duration_bucket() in bpf/account.h.
double duration_bucket_end_ns(std::size_t bucket);

/// The bucket that the BPF side puts a duration of `ns` nanoseconds into.
std::size_t duration_bucket(std::uint64_t ns);

/// Upper end of size bucket `bucket`, inclusive, in bytes; infinity for the last one.
double size_bucket_end(std::size_t bucket);

/// Duration in nanoseconds below which the share `quantile` (0..1) of the calls stays, interpolated
/// inside its bucket (a bucket spans a factor of 1.33 or 1.5). NaN when there are no calls.
double duration_quantile_ns(const DurationCounts& counts, double quantile);

}  // namespace ingero::model
