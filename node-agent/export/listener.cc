// SPDX-License-Identifier: Apache-2.0
#include "export/listener.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <utility>

#include "base/listen_address.h"

namespace ingero::exporting {
namespace {

constexpr int kBacklog = 128;

struct FreeAddresses {
  void operator()(addrinfo* addresses) const { freeaddrinfo(addresses); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

std::string hint_for(int code) {
  switch (code) {
    case EADDRINUSE: return "another process listens there; choose another port";
    case EACCES: return "ports below 1024 need CAP_NET_BIND_SERVICE; choose another port";
    case EADDRNOTAVAIL: return "no interface has this address";
    default: return "";
  }
}

tl::unexpected<Error> fail_listen(const std::string& host, std::uint16_t port, int code) {
  return fail(
      Error::from_errno(code, "listen", to_string(ListenAddress{host, port}), hint_for(code)));
}

Result<Addresses> look_up(const std::string& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int code = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (code == 0) return Addresses(found);
  return fail(Error{"listen", to_string(ListenAddress{host, port}), gai_strerror(code),
                    "give an address of this machine, or none for all interfaces", 0});
}

/// Socket option errors do not matter here: bind() reports what follows from them.
void set_option(int fd, int level, int option, int value) {
  static_cast<void>(setsockopt(fd, level, option, &value, sizeof(value)));
}

/// The socket, or errno.
std::pair<UniqueFd, int> bind_to(const addrinfo& address, bool dual_stack) {
  UniqueFd fd(socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return {UniqueFd(), errno};
  // Not SO_REUSEPORT, cpp-httplib's default: two agents would share the port, each seeing half the
  // scrapes.
  set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (address.ai_family == AF_INET6) {
    set_option(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, dual_stack ? 0 : 1);
  }
  if (bind(fd.get(), address.ai_addr, address.ai_addrlen) != 0) return {UniqueFd(), errno};
  if (listen(fd.get(), kBacklog) != 0) return {UniqueFd(), errno};
  return {std::move(fd), 0};
}

std::uint16_t bound_port(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  std::array<char, NI_MAXSERV> service{};
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (getsockname(fd, generic, &size) != 0) return 0;
  if (getnameinfo(generic, size, nullptr, 0, service.data(), service.size(), NI_NUMERICSERV) != 0) {
    return 0;
  }
  return static_cast<std::uint16_t>(std::strtoul(service.data(), nullptr, 10));
}

Result<Listener> listen_on(const std::string& address, bool dual_stack, const std::string& host,
                           std::uint16_t port) {
  const auto addresses = look_up(address, port);
  if (!addresses) return fail(addresses.error());
  int code = EADDRNOTAVAIL;
  for (const addrinfo* entry = addresses->get(); entry; entry = entry->ai_next) {
    auto [fd, problem] = bind_to(*entry, dual_stack);
    if (fd) {
      const std::uint16_t bound = bound_port(fd.get());
      return Listener{std::move(fd), bound};
    }
    code = problem;
  }
  return fail_listen(host, port, code);
}

bool means_no_ipv6(const Error& error) {
  return error.code == EAFNOSUPPORT || error.code == EADDRNOTAVAIL || error.code == 0;
}

}  // namespace

Result<Listener> listen_tcp(const std::string& host, std::uint16_t port) {
  if (!host.empty()) return listen_on(host, false, host, port);
  auto listener = listen_on("::", true, host, port);
  if (listener || !means_no_ipv6(listener.error())) return listener;
  return listen_on("0.0.0.0", false, host, port);
}

}  // namespace ingero::exporting
