// SPDX-License-Identifier: Apache-2.0
#include "collect/error_codes.h"

#include <gtest/gtest.h>

namespace ingero::collect {
namespace {

constexpr std::uint64_t kHonest = 1, kTenant = 2;
constexpr std::uint16_t kMemcpy = 100;

TEST(ErrorCodes, ThoseBeyondTheRoomOfAFunctionAreOtherAndTheFirstDoNotMove) {
  ErrorCodes codes;
  EXPECT_EQ(codes.admit(kTenant, kMemcpy, 2), 2);
  std::size_t other = 0;
  for (std::int32_t code = 1000; code < 7000; ++code)
    other += codes.admit(kTenant, kMemcpy, code) == model::kOtherErrorCode ? 1 : 0;
  EXPECT_EQ(other, 6000 - (ErrorCodes::kMaxPerFunction - 1));
  EXPECT_EQ(codes.admit(kTenant, kMemcpy, 2), 2);
  EXPECT_EQ(codes.admit(kTenant, kMemcpy, 1000), 1000);
}

TEST(ErrorCodes, ATenantThatInventsCodesTakesNoOthersRoom) {
  ErrorCodes codes;
  for (std::int32_t code = 1000; code < 7000; ++code) codes.admit(kTenant, kMemcpy, code);
  EXPECT_EQ(codes.admit(kHonest, kMemcpy, 2), 2);
}

TEST(ErrorCodes, ContainersThatAreForgottenLeaveNothing) {
  ErrorCodes codes;
  for (std::int32_t code = 0; code < 32; ++code) codes.admit(kTenant, kMemcpy, code);
  EXPECT_EQ(codes.admit(kTenant, kMemcpy, 99), model::kOtherErrorCode);
  codes.forget({static_cast<model::CgroupId>(kTenant)});
  EXPECT_EQ(codes.admit(kTenant, kMemcpy, 99), 99);
}

}  // namespace
}  // namespace ingero::collect
