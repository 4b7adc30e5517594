// SPDX-License-Identifier: Apache-2.0
#include "model/histogram.h"

#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

namespace ingero::model {
namespace {

constexpr std::size_t kFirstExponent = 6;     // 64/1024 us = 62.5 ns
constexpr double kNsPerUnit = 1000.0 / 1024;  // the unit of the BPF side is 1/1024 us

}  // namespace

double duration_bucket_end_ns(std::size_t bucket) {
  if (bucket == 0) return std::ldexp(1.0, kFirstExponent) * kNsPerUnit;
  if (bucket >= DURATION_BUCKETS - 1) return std::numeric_limits<double>::infinity();
  const std::size_t exponent = kFirstExponent + (bucket - 1) / 2;
  const double halves = static_cast<double>((bucket - 1) % 2 + 1);
  return std::ldexp(1.0 + halves / 2, static_cast<int>(exponent)) * kNsPerUnit;
}

std::size_t duration_bucket(std::uint64_t ns) {
  const std::uint64_t v = ns ? (ns - 1) * 128 / 125 : 0;
  if (v < 64) return 0;
  const std::size_t exponent = static_cast<std::size_t>(std::bit_width(v)) - 1;
  const std::size_t bucket = 1 + (exponent - kFirstExponent) * 2 + ((v >> (exponent - 1)) & 1);
  return bucket < DURATION_BUCKETS ? bucket : DURATION_BUCKETS - 1;
}

double size_bucket_end(std::size_t bucket) {
  if (bucket >= SIZE_BUCKETS - 1) return std::numeric_limits<double>::infinity();
  return std::ldexp(1.0, static_cast<int>(10 + 2 * bucket));
}

double duration_quantile_ns(const DurationCounts& counts, double quantile) {
  const std::uint64_t total = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
  if (total == 0) return std::numeric_limits<double>::quiet_NaN();
  const double wanted = quantile * static_cast<double>(total);
  double below = 0;
  for (std::size_t bucket = 0; bucket < counts.size(); ++bucket) {
    const double here = static_cast<double>(counts[bucket]);
    if (here > 0 && below + here >= wanted) {
      const double low = bucket == 0 ? 0 : duration_bucket_end_ns(bucket - 1);
      const double high = duration_bucket_end_ns(bucket);
      if (std::isinf(high)) return low;
      return low + (high - low) * std::max(0.0, wanted - below) / here;
    }
    below += here;
  }
  return duration_bucket_end_ns(counts.size() - 2);
}

}  // namespace ingero::model
