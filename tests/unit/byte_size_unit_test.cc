// SPDX-License-Identifier: Apache-2.0
#include "base/byte_size.h"

#include <gtest/gtest.h>

namespace ingero {
namespace {

TEST(ByteSizeTest, EveryUnitIsReadInEachOfItsSpellings) {
  for (const char* text : {"1073741824", "1073741824B", "1048576K", "1048576Ki", "1048576KiB",
                           "1024M", "1024Mi", "1024MiB", "1G", "1Gi", "1GiB"})
    EXPECT_EQ(parse_byte_size(text), 1ULL << 30) << text;
  for (const char* text : {"2T", "2Ti", "2TiB"})
    EXPECT_EQ(parse_byte_size(text), 2ULL << 40) << text;
  for (const char* text : {"3000000000000B", "3000000000kB", "3000000MB", "3000GB", "3TB"})
    EXPECT_EQ(parse_byte_size(text), 3'000'000'000'000U) << text;
}

TEST(ByteSizeTest, WhatIsNoSizeIsRefused) {
  for (const char* text : {"", "0", "0Gi", "Gi", "1gi", "1GI", "1 Gi", "1Gi ", "1GiBB", "1.5Gi",
                           "-1Gi", "1Pi", "8388608Ti1", "8388609Ti", "99999999999999999999"})
    EXPECT_EQ(parse_byte_size(text), std::nullopt) << text;
  EXPECT_EQ(parse_byte_size("8388608Ti"), 1ULL << 63);
}

TEST(ByteSizeTest, WhatIsWrittenIsReadAgain) {
  for (const std::uint64_t bytes :
       {1ULL, 1234ULL, 1ULL << 10, 1500ULL << 20, 64ULL << 30, 16ULL << 40})
    EXPECT_EQ(parse_byte_size(format_byte_size(bytes)), bytes);
}

}  // namespace
}  // namespace ingero
