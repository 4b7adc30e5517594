// SPDX-License-Identifier: Apache-2.0
#include "base/listen_address.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/text.h"

namespace ingero {
namespace {

constexpr std::size_t kMaxHostLength = 253;  // RFC 1035

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_host_char(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '.' ||
         c == '_';
}

bool is_ip(int family, std::string_view text) {
  unsigned char buffer[sizeof(in6_addr)];
  return ::inet_pton(family, std::string(text).c_str(), buffer) == 1;
}

/// IPv6 with an optional zone, such as fe80::1%eth0.
bool is_ipv6(std::string_view text) {
  const std::size_t percent = text.find('%');
  if (percent == std::string_view::npos) return is_ip(AF_INET6, text);
  const std::string_view zone = text.substr(percent + 1);
  return is_ip(AF_INET6, text.substr(0, percent)) && !zone.empty() &&
         std::all_of(zone.begin(), zone.end(), is_host_char);
}

std::optional<std::uint16_t> parse_port(std::string_view text) {
  std::uint16_t port = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, port);
  if (text.empty() || error != std::errc() || stop != end) return std::nullopt;
  return port;
}

tl::unexpected<Error> bad(std::string_view text, std::string cause, std::string hint) {
  return fail(
      Error{"read listen address", escape_terminal(text), std::move(cause), std::move(hint)});
}

/// Empty when `host` can be listened on, else what is wrong with it.
std::string host_problem(std::string_view host) {
  if (host.size() > kMaxHostLength) return "the host name is longer than 253 characters";
  if (!std::all_of(host.begin(), host.end(), is_host_char)) {
    return "the host holds a character that no host name has";
  }
  const bool numeric =
      std::all_of(host.begin(), host.end(), [](char c) { return is_digit(c) || c == '.'; });
  if (numeric && !host.empty() && !is_ip(AF_INET, host)) return "this is not an IPv4 address";
  return "";
}

}  // namespace

Result<ListenAddress> parse_listen_address(std::string_view text) {
  if (text.empty()) return bad(text, "it is empty", "write :9090 to listen on all interfaces");
  if (text.find("//") != std::string_view::npos) {
    return bad(text, "it is a URL",
               "write host:port without a scheme or path, such as 127.0.0.1:9090");
  }
  const std::size_t colon = text.rfind(':');
  const bool bracketed = text.front() == '[';
  std::string_view host;
  std::string_view port = text;
  if (bracketed) {
    const std::size_t close = text.find(']');
    if (close == std::string_view::npos || close + 1 >= text.size() || text[close + 1] != ':') {
      return bad(text, "no port follows the bracket", "write it as [::1]:9090");
    }
    host = text.substr(1, close - 1);
    port = text.substr(close + 2);
    if (!is_ipv6(host))
      return bad(text, "no IPv6 address is in the brackets", "write it as [::1]:9090");
  } else if (colon != std::string_view::npos) {
    host = text.substr(0, colon);
    port = text.substr(colon + 1);
    if (host.find(':') != std::string_view::npos) {
      return bad(text, "an IPv6 address needs brackets", "write it as [::1]:9090");
    }
    if (host == "*")
      return bad(text, "* is not a host", "write :" + std::string(port) + " for all interfaces");
    if (std::string problem = host_problem(host); !problem.empty()) {
      return bad(text, std::move(problem), "write it as 127.0.0.1:9090 or :9090");
    }
  } else if (!std::all_of(text.begin(), text.end(), is_digit)) {
    return bad(text, "it has no port", "append one, such as " + escape_terminal(text) + ":9090");
  }
  const std::optional<std::uint16_t> number = parse_port(port);
  if (!number) {
    return bad(text, "the port is not a number from 0 to 65535",
               "write it as :9090, or :0 for any free port");
  }
  return ListenAddress{std::string(host), *number};
}

std::string to_string(const ListenAddress& address) {
  if (address.host.find(':') != std::string::npos) {
    return fmt::format("[{}]:{}", address.host, address.port);
  }
  return fmt::format("{}:{}", address.host, address.port);
}

}  // namespace ingero
