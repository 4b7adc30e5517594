// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/listen_address.h"

namespace ingero {
namespace {

using testing::HasSubstr;

struct Good {
  const char* text;
  const char* host;
  std::uint16_t port;
  const char* written;
};

class GoodAddress : public testing::TestWithParam<Good> {};

TEST_P(GoodAddress, IsReadAndWrittenBack) {
  const auto address = parse_listen_address(GetParam().text);
  ASSERT_TRUE(address) << address.error().message();
  EXPECT_EQ(address->host, GetParam().host);
  EXPECT_EQ(address->port, GetParam().port);
  EXPECT_EQ(to_string(*address), GetParam().written);
  EXPECT_EQ(parse_listen_address(to_string(*address)).value(), *address);
}

INSTANTIATE_TEST_SUITE_P(
    ListenAddress, GoodAddress,
    testing::Values(Good{":9090", "", 9090, ":9090"}, Good{"9090", "", 9090, ":9090"},
                    Good{":0", "", 0, ":0"},
                    Good{"127.0.0.1:9090", "127.0.0.1", 9090, "127.0.0.1:9090"},
                    Good{"0.0.0.0:65535", "0.0.0.0", 65535, "0.0.0.0:65535"},
                    Good{"[::1]:9090", "::1", 9090, "[::1]:9090"},
                    Good{"[::]:1", "::", 1, "[::]:1"},
                    Good{"[fe80::1%eth0]:80", "fe80::1%eth0", 80, "[fe80::1%eth0]:80"},
                    Good{"localhost:9090", "localhost", 9090, "localhost:9090"},
                    Good{"node-7.example.com:1", "node-7.example.com", 1, "node-7.example.com:1"}));

struct Bad {
  const char* text;
  const char* cause;
  const char* hint;
};

class BadAddress : public testing::TestWithParam<Bad> {};

TEST_P(BadAddress, IsRefusedWithACauseAndAHint) {
  const auto address = parse_listen_address(GetParam().text);
  ASSERT_FALSE(address);
  EXPECT_THAT(address.error().cause, HasSubstr(GetParam().cause));
  EXPECT_THAT(address.error().hint, HasSubstr(GetParam().hint));
}

INSTANTIATE_TEST_SUITE_P(
    ListenAddress, BadAddress,
    testing::Values(Bad{"", "empty", ":9090"}, Bad{":", "port", ":9090"},
                    Bad{":65536", "0 to 65535", ":9090"}, Bad{":-1", "0 to 65535", ":9090"},
                    Bad{":90a", "0 to 65535", ":9090"}, Bad{": 9090", "0 to 65535", ":9090"},
                    Bad{"99999999999999999999", "0 to 65535", ":9090"},
                    Bad{"127.0.0.1", "no port", "127.0.0.1:9090"},
                    Bad{"localhost", "no port", "localhost:9090"},
                    Bad{"::1:9090", "brackets", "[::1]:9090"},
                    Bad{"[::1]", "no port", "[::1]:9090"},
                    Bad{"[::1]9090", "no port", "[::1]:9090"}, Bad{"[::1", "no port", "[::1]:9090"},
                    Bad{"[]:1", "IPv6", "[::1]:9090"}, Bad{"[127.0.0.1]:1", "IPv6", "[::1]:9090"},
                    Bad{"256.0.0.1:9090", "not an IPv4", "127.0.0.1:9090"},
                    Bad{"1.2.3:9090", "not an IPv4", "127.0.0.1:9090"},
                    Bad{"*:9090", "* is not a host", ":9090"},
                    Bad{"http://localhost:9090", "URL", "without a scheme"},
                    Bad{"a b:9090", "character", "127.0.0.1:9090"},
                    Bad{"\x1b[31m:9090", "character", "127.0.0.1:9090"}));

TEST(ListenAddress, DoesNotPassControlCharactersIntoTheError) {
  const auto address = parse_listen_address("\x1b[31m:9090");
  ASSERT_FALSE(address);
  EXPECT_EQ(address.error().message().find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace ingero
